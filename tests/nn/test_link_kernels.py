"""A link's chain by kernels of our own, against the plain one and against walking it slowly.

On a CUDA device, or in Triton's interpreter (TRITON_INTERPRET=1); in fp32, where a near-tie is rare enough for random
numbers never to meet one. Ties are made on purpose, with whole numbers, where sums are exact.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import Decoder, Limits, Precision, Source
from longstride.nn import link as link_module
from longstride.nn.fused import Kernel
from longstride.nn.fused_trials import TOLERANCE, switch, trial
from longstride.nn.link import CANDIDATES, HIGHEST_RANK, MOST_CANDIDATES, Link, plus_product, walked
from longstride.ops import best_of_classes
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.verification.twin import SameSteps
from tests.decoding.drafters import tiny_drafter
from tests.decoding.test_blockwise import random_heads
from tests.models import random_source, tiny_model
from tests.nn.running_kernels import where
from tests.nn.test_link import slow_chain, slow_draft

# Triton's interpreter makes a number of an array at the head of every loop.
loops = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
WIDTH = 6
LIMITS = Limits(max_length=20)


@pytest.fixture
def device() -> torch.device:
    return where(loops=True)


class Case:
    """A random link, and a block of slots whose logits do not lie side by side; with `ties`, of few whole numbers."""

    def __init__(
        self, seed: int, rows: int, block: int, vocabulary: int, rank: int, candidates: int, ties: bool = False
    ) -> None:
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> Tensor:
            found = torch.randn(*shape, generator=generator)
            return found.round() if ties else found

        device = where(loops=True)
        self.link = Link(vocabulary, WIDTH, rank, candidates).requires_grad_(False)
        for weight in self.link.parameters():
            weight.copy_(random(*weight.shape))
        self.link.to(device)
        self.hidden = random(rows, block, WIDTH).to(device)
        self.logits = random(rows, 1 + block, vocabulary).to(device)[:, 1:]
        self.newest = torch.randint(vocabulary, (rows,), generator=generator).to(device)

    def walked(self, logits: Tensor | None = None) -> tuple[Tensor, Tensor]:
        link = self.link
        tables = link.before.weight, link.after.weight
        logits = self.logits if logits is None else logits
        return walked(logits, link.gate(self.hidden), self.newest, *tables, link.candidates)

    def chained(self, own: bool) -> Tensor:
        self.link.use(["link"] if own else [])
        return self.link.chained(self.logits, self.hidden, self.newest)

    def drafted(self, own: bool) -> Tensor:
        """Into columns of a wider table, after tokens that are the column before them."""
        self.link.use(["link"] if own else [])
        rows, block, _ = self.logits.shape
        table = torch.full((rows, 1 + block), -1, device=self.logits.device)
        table[:, 0] = self.newest
        count = torch.zeros_like(self.newest)
        found = self.link.drafted(self.logits, self.hidden, table[:, 0], table[:, 1:], count)
        assert count.tolist() == [block] * rows
        assert torch.equal(table[:, 0], self.newest)
        assert torch.equal(table[:, 1:], found)
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


@loops
@pytest.mark.gpu
@settings(max_examples=60, deadline=None)
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
        assert torch.equal(previous, case.link.walk(case.logits, case.hidden, case.newest))
        assert torch.equal(drafted, drafted_plainly)
    link = case.link.cpu()
    for row in range(rows):
        given_row = (link, case.logits[row].cpu(), case.hidden[row].cpu(), int(case.newest[row]))
        assert drafted[row].tolist() == slow_draft(*given_row)
        slow = slow_chain(*given_row)
        torch.testing.assert_close(own[row].cpu(), slow, atol=1e-4, rtol=1e-4)


@loops
@pytest.mark.gpu
@settings(max_examples=30, deadline=None)
@given(**shapes)
def test_a_draft_from_states_is_one_from_their_logits(seed, rows, block, vocabulary, rank, candidates):
    case = Case(seed, rows, block, vocabulary, rank, candidates)
    weight = torch.randn(vocabulary, WIDTH, generator=torch.Generator().manual_seed(seed)).to(case.hidden.device)
    link, given = case.link, (case.hidden, weight, case.newest)
    link.use(["link"])
    found, count = torch.full((rows, block), -1, device=weight.device), torch.zeros_like(case.newest)
    assert torch.equal(link.drafted_from(*given, into=found, count=count), found)
    assert count.tolist() == [block] * rows
    link.use([])
    assert torch.equal(found, link.drafted_from(*given))
    assert torch.equal(found, link.drafted(case.hidden @ weight.T, case.hidden, case.newest))


@loops
@pytest.mark.gpu
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 90), st.sampled_from([1, 7, 16, 24, 64]), st.booleans())
def test_candidates_are_the_first_of_the_best(seed, vocabulary, classes, ties):
    device = where(loops=True)
    from longstride.nn import link_kernels

    classes = min(classes, vocabulary)
    logits = torch.randn(2, 3, vocabulary, generator=torch.Generator().manual_seed(seed))
    logits = logits.round() if ties else logits
    values, ids = link_kernels.best_of_classes(logits.to(device), classes)
    expected, first = best_of_classes(logits, classes)
    assert torch.equal(values.cpu(), expected)
    assert torch.equal(ids.cpu().long(), first)


@loops
@pytest.mark.gpu
def test_a_vocabulary_of_many_turns(device, monkeypatch):
    """So many that a program's tile does not hold them at once."""
    from longstride.nn import link_kernels

    monkeypatch.setattr(link_kernels, "_TURNS", 16)
    logits = torch.randint(-9, 9, (2, 2, 1003), generator=torch.Generator().manual_seed(0)).float()
    values, ids = link_kernels.best_of_classes(logits.to(device), 20)
    expected, first = best_of_classes(logits, 20)
    assert torch.equal(values.cpu(), expected)
    assert torch.equal(ids.cpu().long(), first)


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("broken", [float("nan"), float("-inf"), float("inf")])
def test_chains_stay_within_the_vocabulary_whatever_the_logits_are(broken, device):
    case = Case(0, rows=2, block=4, vocabulary=37, rank=16, candidates=10)
    for logits in (torch.full_like(case.logits, broken), case.logits.masked_fill(case.logits > 0, broken)):
        previous, _ = case.walked(logits)
        assert (previous >= 0).all()
        assert (previous < 37).all()


@loops
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


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(11, 3, 11, 6), (500, 16, 64, 64), (300, 40, 64, 72), (300, 128, 20, 600)])
def test_trials_pass(sizes, device):
    assert trial(Kernel("link", sizes), device, torch.float32) <= TOLERANCE[torch.float32]


@loops
@pytest.mark.gpu
def test_a_trial_finds_a_chain_that_is_not_the_best(device, monkeypatch):
    from longstride.nn import fused_trials

    def careless(logits: Tensor, gate: Tensor, newest: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        return walked(torch.randn_like(logits), gate, newest, *rest)

    def forgetful(logits: Tensor, gate: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        return walked(logits, torch.zeros_like(gate), *rest)

    monkeypatch.setattr(fused_trials, "walked", careless)
    with pytest.raises(ArithmeticError, match="no candidate"):
        trial(Kernel("link", (100, 16, 10, 16)), device, torch.float32)
    monkeypatch.setattr(fused_trials, "walked", forgetful)
    assert trial(Kernel("link", (100, 16, 10, 16)), device, torch.float32) > 0.1


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


def test_links_name_the_kernel_where_it_fits():
    assert Link(300, WIDTH, 24).kernels() == [Kernel("link", (300, 24, MOST_CANDIDATES, WIDTH))]
    assert Link(11, WIDTH, 3).kernels() == [Kernel("link", (11, 3, 11, WIDTH))]
    assert Link(100, WIDTH, HIGHEST_RANK + 1).kernels() == []
    assert Link(300, WIDTH, 24, 0).kernels() == []
    assert Link(300, WIDTH, 24, MOST_CANDIDATES + 1).kernels() == []


def test_with_its_kernels_a_link_has_more_candidates():
    link = Link(300, WIDTH, 24)
    link.use(["link"])
    assert link.candidates == MOST_CANDIDATES
    link.use([])
    assert link.candidates == CANDIDATES
    given = Link(300, WIDTH, 24, 7)
    given.use(["link"])
    assert given.candidates == 7


def test_it_is_used_when_it_is_switched_on(monkeypatch):
    link = Link(11, WIDTH, 3)
    logits, hidden, newest = torch.randn(2, 4, 11), torch.randn(2, 4, WIDTH), torch.tensor([5, 6])
    asked: list[int] = []

    def noted(logits: Tensor, gate: Tensor, newest: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        asked.append(logits.shape[1])
        return newest[:, None].expand(-1, 4), link.asked(hidden, link.walk(logits, hidden, newest))

    monkeypatch.setattr(link_module, "walked", noted)
    with torch.inference_mode():
        plain = link.chained(logits, hidden, newest)
        assert switch(link, torch.device("cpu"), torch.float32) == {}
        link.chained(logits, hidden, newest)
        assert asked == []
        link.use(["link"])
        torch.testing.assert_close(link.chained(logits, hidden, newest), plain)
        assert asked == [4]


# --- whole decoders --------------------------------------------------------------------------------------------------

KINDS = ("blockwise", "draft-verify", "draft-verify full")


def decoder_of(kind: str, runner: Any, own: bool | None = None) -> Decoder:
    """One with links; with `own` given, its link uses the kernels or not, whatever the runner has chosen."""
    model = runner.place(tiny_model(7, sharpness=0.4))
    if kind == "blockwise":
        heads = runner.place(random_heads(7, 4, link=3))
        part, decoder = heads.link, Blockwise(model, heads, runner)
    else:
        drafter = runner.place(tiny_drafter(7, prefix="full" if kind.endswith("full") else "causal", link=3))
        part, decoder = drafter.link, DraftVerify(model, drafter, runner)
    if own is not None:
        part.use(["link"] if own else [])
    return decoder


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_drafts_are_as_they_were(kind, device):
    runner = EagerRunner(device, "fp32")
    own, plain = (decoder_of(kind, runner, choice) for choice in (True, False))
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
        assert found == SameSteps(own).decode(padded, LIMITS).tokens
