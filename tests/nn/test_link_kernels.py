"""A link's chain by kernels of our own, against the plain one and against walking it slowly.

On a CUDA device, or in Triton's interpreter (TRITON_INTERPRET=1); in fp32, where a near-tie is rare enough for random
numbers never to meet one. Ties are made on purpose, with whole numbers, where sums are exact.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride import ops
from longstride.contract import Decoder, Limits, Precision, Source
from longstride.nn.link import CANDIDATES, MOST_CANDIDATES, Link
from longstride.ops import best_chain, best_of_classes
from longstride.ops.chain import plus_product
from longstride.ops.cuda.self_test import TOLERANCE, random_of
from longstride.ops.cuda.table import HIGHEST_RANK
from longstride.ops.kernels import Kernel, KernelTable, kernels_of
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.verification.exactness import SameShapeGreedy
from tests.conformance.link_check import link
from tests.decoding.drafters import tiny_drafter
from tests.decoding.test_blockwise import random_heads
from tests.models import random_source, tiny_model
from tests.nn.running_kernels import KernelRunner, few, table_for, where
from tests.nn.test_link import slow_chain, slow_draft

WIDTH = 6
LIMITS = Limits(max_length=20)


@pytest.fixture
def device() -> torch.device:
    return where()


class Case:
    """A random link, and a block of slots whose logits do not lie side by side; with `ties`, of few whole numbers."""

    def __init__(
        self, seed: int, rows: int, block: int, vocabulary: int, rank: int, candidates: int, ties: bool = False
    ) -> None:
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> Tensor:
            found = torch.randn(*shape, generator=generator)
            return found.round() if ties else found

        device = where()
        self.link = Link(vocabulary, WIDTH, rank, candidates).requires_grad_(False)
        for weight in self.link.parameters():
            weight.copy_(random(*weight.shape))
        self.link.to(device)
        self.hidden = random(rows, block, WIDTH).to(device)
        self.logits = random(rows, 1 + block, vocabulary).to(device)[:, 1:]
        self.newest = torch.randint(vocabulary, (rows,), generator=generator).to(device)

    def walked(self, logits: Tensor | None = None) -> tuple[Tensor, Tensor]:
        from longstride.ops.cuda.link_chain import walked

        link = self.link
        tables = link.before.weight, link.after.weight
        logits = self.logits if logits is None else logits
        return walked(logits, link.gate(self.hidden), self.newest, *tables, link.candidates)

    def chained(self, own: bool) -> Tensor:
        with kernels_of(self.table(own)):
            return self.link.chained(self.logits, self.hidden, self.newest)

    def walk(self) -> Tensor:
        """[rows, block] the token before each slot: `newest` before the first, then what the plain chain has chosen"""
        link = self.link
        candidates = best_of_classes(self.logits, link.candidates)
        tables = link.before.weight, link.factors(self.hidden), link.after.weight
        return torch.cat([self.newest[:, None], best_chain(*candidates, self.newest, *tables)[:, :-1]], dim=1)

    def table(self, own: bool) -> KernelTable | None:
        """Of the link's kernels, if they are wanted."""
        return table_for(self.logits.device, ["link"]) if own else None

    def drafted(self, own: bool) -> Tensor:
        """Into columns of a wider table, after tokens that are the column before them."""
        rows, block, _ = self.logits.shape
        table = torch.full((rows, 1 + block), -1, device=self.logits.device)
        table[:, 0] = self.newest
        count = torch.zeros_like(self.newest)
        with kernels_of(self.table(own)):
            found = self.link.drafted(self.logits, self.hidden, table[:, 0], table[:, 1:], count)
        assert count.tolist() == [block] * rows
        assert torch.equal(table[:, 0], self.newest)
        assert torch.equal(table[:, 1:], found)
        with kernels_of(self.table(own)):
            assert torch.equal(found, self.link.drafted(self.logits, self.hidden, self.newest))
        return found


shapes = {
    "seed": st.integers(0, 10_000),
    "rows": st.integers(1, 3),
    "block": st.integers(1, 5),
    "vocabulary": st.integers(2, 300),
    "rank": st.sampled_from([1, 3, 16, 24, 64]),
    "candidates": st.sampled_from([1, 5, 16, 23, 64, 200, 256]),
}


@pytest.mark.gpu
@settings(max_examples=60)
@given(ties=st.booleans(), **shapes)
def test_a_chain_is_what_plain_and_slow_ones_are(seed, rows, block, vocabulary, rank, candidates, ties):
    case = Case(seed, rows, block, vocabulary, rank, candidates, ties)
    given = case.logits.clone()
    own, plain = case.chained(True), case.chained(False)
    assert torch.equal(case.logits, given)
    drafted, drafted_plainly = case.drafted(True), case.drafted(False)
    previous, asked = case.walked()
    torch.testing.assert_close(asked, case.link.asked(case.hidden, previous), atol=1e-5, rtol=1e-5)
    if not (case.logits.is_cuda and ties):  # where PyTorch's choice among equals is its own
        torch.testing.assert_close(own, plain, atol=1e-4, rtol=1e-4)
        assert torch.equal(previous, case.walk())
        assert torch.equal(drafted, drafted_plainly)
    link = case.link.cpu()
    for row in range(rows):
        given_row = (link, case.logits[row].cpu(), case.hidden[row].cpu(), int(case.newest[row]))
        assert drafted[row].tolist() == slow_draft(*given_row)
        slow = slow_chain(*given_row)
        torch.testing.assert_close(own[row].cpu(), slow, atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
@settings(max_examples=30)
@given(**shapes)
def test_a_draft_from_states_is_one_from_their_logits(seed, rows, block, vocabulary, rank, candidates):
    case = Case(seed, rows, block, vocabulary, rank, candidates)
    weight = torch.randn(vocabulary, WIDTH, generator=torch.Generator().manual_seed(seed)).to(case.hidden.device)
    link, given = case.link, (case.hidden, weight, case.newest)
    found, count = torch.full((rows, block), -1, device=weight.device), torch.zeros_like(case.newest)
    with kernels_of(case.table(True)):
        assert torch.equal(link.drafted_from(*given, into=found, count=count), found)
    assert count.tolist() == [block] * rows
    assert torch.equal(found, link.drafted_from(*given))
    assert torch.equal(found, link.drafted(case.hidden @ weight.T, case.hidden, case.newest))


@pytest.mark.gpu
@settings(max_examples=40)
@given(st.integers(0, 1000), st.integers(1, 90), st.sampled_from([1, 7, 16, 24, 64]), st.booleans())
def test_candidates_are_the_first_of_the_best(seed, vocabulary, classes, ties):
    device = where()
    from longstride.ops.cuda import link_chain as link_kernels

    classes = min(classes, vocabulary)
    logits = torch.randn(2, 3, vocabulary, generator=torch.Generator().manual_seed(seed))
    logits = logits.round() if ties else logits
    values, ids = link_kernels.best_of_classes(logits.to(device), classes)
    expected, first = best_of_classes(logits, classes)
    assert torch.equal(values.cpu(), expected)
    assert torch.equal(ids.cpu().long(), first)


@pytest.mark.gpu
def test_a_vocabulary_of_many_turns(device, monkeypatch):
    """So many that a program's tile does not hold them at once."""
    from longstride.ops.cuda import link_chain as link_kernels

    monkeypatch.setattr(link_kernels, "_TURNS", 16)
    logits = torch.randint(-9, 9, (2, 2, 1003), generator=torch.Generator().manual_seed(0)).float()
    values, ids = link_kernels.best_of_classes(logits.to(device), 20)
    expected, first = best_of_classes(logits, 20)
    assert torch.equal(values.cpu(), expected)
    assert torch.equal(ids.cpu().long(), first)


@pytest.mark.gpu
@pytest.mark.parametrize("broken", [float("nan"), float("-inf"), float("inf")])
def test_chains_stay_within_the_vocabulary_whatever_the_logits_are(broken, device):
    case = Case(0, rows=2, block=4, vocabulary=37, rank=16, candidates=10)
    for logits in (torch.full_like(case.logits, broken), case.logits.masked_fill(case.logits > 0, broken)):
        previous, _ = case.walked(logits)
        assert (previous >= 0).all()
        assert (previous < 37).all()


@pytest.mark.gpu
def test_a_row_does_not_depend_on_the_others(device):
    case = Case(1, rows=3, block=4, vocabulary=50, rank=24, candidates=12)
    previous, asked = case.walked()
    for row in range(3):
        part = Case(1, rows=3, block=4, vocabulary=50, rank=24, candidates=12)
        part.logits, part.hidden, part.newest = (x[row : row + 1] for x in (part.logits, part.hidden, part.newest))
        alone = part.walked()
        assert torch.equal(alone[0][0], previous[row])
        torch.testing.assert_close(alone[1][0], asked[row], atol=1e-6, rtol=1e-6)  # the gate is the library's product


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", few([(11, 3, 11, 6), (300, 40, 64, 72), (500, 16, 64, 64), (300, 128, 20, 600)]))
def test_trials_pass(sizes, device):
    assert link(random_of(device, torch.float32), *sizes) <= TOLERANCE[torch.float32]


@pytest.mark.gpu
def test_a_trial_finds_a_chain_that_is_not_the_best(device, monkeypatch):
    from longstride.ops.cuda import link_chain

    walked = link_chain.walked

    def careless(logits: Tensor, gate: Tensor, newest: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        return walked(torch.randn_like(logits), gate, newest, *rest)

    def forgetful(logits: Tensor, gate: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        return walked(logits, torch.zeros_like(gate), *rest)

    monkeypatch.setattr(link_chain, "walked", careless)
    with pytest.raises(ArithmeticError, match="no candidate"):
        link(random_of(device, torch.float32), 100, 16, 10, 16)
    monkeypatch.setattr(link_chain, "walked", forgetful)
    assert link(random_of(device, torch.float32), 100, 16, 10, 16) > 0.1


# --- without Triton --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("sliced", [False, True])
def test_a_product_that_adds(rows, block, sliced):
    logits = torch.randn(rows, 1 + block, 9, dtype=torch.float64)[:, 1:]
    logits = logits if sliced else logits.contiguous()
    asked, after = torch.randn(rows, block, 5, dtype=torch.float64), torch.randn(9, 5, dtype=torch.float64)
    before = logits.clone()
    torch.testing.assert_close(plus_product(logits, asked, after), logits + asked @ after.T)
    assert torch.equal(logits, before)


class Noted:
    """Kernels that carry links out as PyTorch does, and note with which and how many candidates."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        kernels = table_for(torch.device("cpu"), ["link"]).kernels
        self.table = KernelTable([replace(kernel, run=partial(self.run, kernel)) for kernel in kernels], "cpu")

    def run(self, kernel: Kernel, *given: Any) -> Tensor:
        first = 7 if kernel.operation == "chain_tokens_of_states" else 6
        self.asked.append((kernel.operation, given[first]))
        return getattr(ops, kernel.operation).__wrapped__(*given)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("vocabulary", "rank", "candidates", "asked"),
    [
        (300, 24, None, MOST_CANDIDATES),
        (11, 3, None, 11),
        (300, 24, 7, 7),
        (100, HIGHEST_RANK + 1, None, None),
        (300, 24, MOST_CANDIDATES + 1, None),
    ],
)
def test_the_kernel_is_used_where_it_fits_with_as_many_candidates_as_it_takes(vocabulary, rank, candidates, asked):
    link, noted = Link(vocabulary, WIDTH, rank, candidates), Noted()
    logits, hidden, newest = torch.randn(2, 4, vocabulary), torch.randn(2, 4, WIDTH), torch.tensor([5, 6])
    weight = torch.randn(vocabulary, WIDTH)
    assert link.candidates == min(vocabulary, candidates or CANDIDATES)
    with torch.inference_mode():
        plain = link.chained(logits, hidden, newest), link.drafted_from(hidden, weight, newest)
        with kernels_of(noted.table):
            found = link.chained(logits, hidden, newest), link.drafted_from(hidden, weight, newest)
    assert torch.equal(found[0], plain[0])
    assert torch.equal(found[1], plain[1])
    names = [(name, asked) for name in ("chain_logits", "chain_tokens_of_states")] if asked else []
    assert noted.asked[:1] == names[:1]
    assert [one for one in names if one not in noted.asked] == []


# --- whole decoders --------------------------------------------------------------------------------------------------

KINDS = ("blockwise", "draft-verify", "draft-verify full")


def decoder_of(kind: str, runner: Any) -> Decoder:
    """One with links."""
    model = runner.place(tiny_model(7, sharpness=0.4))
    if kind == "blockwise":
        return Blockwise(model, runner.place(random_heads(7, 4, link=3)), runner)
    drafter = runner.place(tiny_drafter(7, prefix="full" if kind.endswith("full") else "causal", link=3))
    return DraftVerify(model, drafter, runner)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_drafts_are_as_they_were(kind, device):
    own, plain = (decoder_of(kind, KernelRunner(device, "fp32", names)) for names in (["link"], []))
    source = random_source(3, 6, seed=2)
    found, expected = (each.decode(source, Limits(max_length=8), trace=True) for each in (own, plain))
    assert found.tokens == expected.tokens
    for mine, theirs in zip(found.traces, expected.traces, strict=True):
        assert [event.draft for event in mine.events] == [event.draft for event in theirs.events]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_give_the_same_tokens_with_it_and_without(kind: str, precision: Precision) -> None:
    """Drafts may differ where logits tie; outputs may not."""
    said: list[str] = []
    own = decoder_of(kind, CudaGraphRunner("cuda:0", precision, tell=said.append))
    plain = decoder_of(kind, CudaGraphRunner("cuda:0", precision, without=["product", "link"], tell=said.append))
    assert not [line for line in said if "link" in line]
    for seed in range(6):
        source = random_source(1, 14, seed=seed)
        padded = Source.of([source.ids[0, : source.lengths[0]].tolist()], 16)
        found = own.decode(padded, LIMITS).tokens
        assert found == plain.decode(padded, LIMITS).tokens
        assert found == SameShapeGreedy(own).decode(padded, LIMITS).tokens
