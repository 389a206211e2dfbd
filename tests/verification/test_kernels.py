"""Our own kernels against tensor code: on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Decoder, Limits
from longstride.engine.outputs import Rows
from longstride.ops.kernels import TYPES
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.verification.acceptance import Rule
from longstride.verification.kernels import Bounds, choose, choose_within, permitted_ids, summarise_fused
from longstride.verification.queue import kernel_of, refill
from tests.decoding.drafters import tiny_drafter
from tests.decoding.test_blockwise import random_heads
from tests.models import random_source, tiny_model
from tests.nn.running_kernels import few, where
from tests.verification.kernel_check import Sizes, differing, differs


@pytest.mark.gpu
@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    block=st.integers(0, 7),
    rule=st.sampled_from(["exact", "top:1", "top:2", "top:3,gap:1.0", "top:9,gap:0.0", "distance:1", "distance:0"]),
    least=st.integers(1, 4),
    min_length=st.integers(0, 2),
    banned=st.sets(st.integers(5, 16), max_size=3),
    forced=st.sampled_from([None, None, 3, 9]),
)
def test_a_step_is_what_tensor_code_makes_of_it(seed, rows, block, rule, least, min_length, banned, forced):
    """Ragged rows, idle ones, ends inside drafts, limits within reach, many equal logits."""
    sizes = Sizes(rows, block, 17, width=8, banned=tuple(banned), min_length=min_length, forced_first=forced)
    sizes = replace(sizes, forced_last=forced if seed % 2 else None)
    with torch.inference_mode():
        assert differs(Rule.from_text(rule), least, sizes, where(), torch.float32, seed) == ""


@pytest.mark.gpu
@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    nodes=st.integers(1, 40),
    min_length=st.integers(0, 2),
    forced=st.sampled_from([None, None, 3, 9]),
)
def test_a_tree_is_judged_as_tensor_code_does(seed, rows, nodes, min_length, forced):
    """Its path, what is committed, the state that is told, and which keys and values are read from then on."""
    sizes = Sizes(rows, nodes, 17, width=8, min_length=min_length, forced_first=forced, tree=True)
    sizes = replace(sizes, forced_last=forced if seed % 2 else None)
    with torch.inference_mode():
        assert differs(Rule(), 1, sizes, where(), torch.float32, seed) == ""


@pytest.mark.gpu
def test_every_way_through_the_kernels():
    assert differing(where(), torch.float32) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("vocabulary", [16, 17, 1000, 16384, 20000])
def test_a_slot_does_not_depend_on_the_others(vocabulary):
    place = where()
    rows, step = 2, 3
    logits = torch.randn(rows, step, vocabulary, device=place)
    permitted = permitted_ids(Limits(), vocabulary, place)
    start, longest = torch.tensor([0, 4], device=place), torch.tensor([90, 90], device=place)
    whole = summarise_fused(logits, Bounds(permitted, start, longest, 0))
    torch.testing.assert_close(whole.normaliser, logits.logsumexp(dim=-1), atol=1e-5, rtol=1e-5)
    for row in range(rows):
        for slot in range(step):
            bounds = Bounds(permitted, start[row : row + 1] + slot, longest[row : row + 1], 0)
            alone = summarise_fused(logits[row : row + 1, slot : slot + 1], bounds)
            assert torch.equal(alone.top[0, 0], whole.top[row, slot])
            assert torch.equal(alone.top_logit[0, 0], whole.top_logit[row, slot])
            assert torch.equal(alone.normaliser[0, 0], whole.normaliser[row, slot])


@pytest.mark.gpu
def test_choices_go_where_they_are_wanted():
    place = where()
    logits = torch.randn(3, 4, 40, device=place)
    permitted = permitted_ids(Limits(banned=(9, 11)), 40, place)
    expected = logits.masked_fill(permitted == 0, -torch.inf).argmax(dim=-1)
    room = torch.zeros(3, 6, dtype=torch.int64, device=place)
    assert torch.equal(choose(logits, permitted), expected)
    count = torch.zeros(3, dtype=torch.int64, device=place)
    choose(logits, permitted, into=room[:, 1:5], count=count)
    assert count.tolist() == [4, 4, 4]
    assert torch.equal(room[:, 1:5], expected)
    assert room[:, [0, 5]].eq(0).all()
    start, longest = torch.tensor([0, 5, 9], device=place), torch.tensor([90, 7, 7], device=place)
    within = choose_within(logits, Bounds(permitted, start, longest, 0))
    assert within.tolist() == [expected[0].tolist(), [*expected[1, :2].tolist(), 3, 3], [3, 3, 3, 3]]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_in_every_type_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    assert differing(torch.device("cuda", 0), dtype) == ""


def decoder_of(kind: str, runner: EagerRunner, seed: int, rule: str, least: int, adaptive: bool) -> Decoder:
    kind, _, tree = kind.partition(" tree=")
    model = runner.place(tiny_model(seed, torch.float32, sharpness=1.5))
    accept = Rule.from_text(rule)
    if kind == "greedy":
        return Greedy(model, runner)
    if kind == "blockwise":
        heads = runner.place(random_heads(seed, 4))
        options = BlockwiseOptions(accept=accept, min_block=least, adaptive=adaptive, tree=int(tree or 0))
        return Blockwise(model, heads, runner, options)
    if kind == "copy-verify":
        return CopyVerify(model, runner, CopyVerifyOptions(4, accept, least, adaptive, suffix=3))
    drafter = runner.place(tiny_drafter(seed, torch.float32))
    made = DraftVerifyOptions(accept=accept, min_block=least, adaptive=adaptive, tree=int(tree or 0))
    return DraftVerify(model, drafter, runner, made)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "kind", few(["greedy", "draft-verify", "draft-verify tree=9", "blockwise", "copy-verify", "blockwise tree=5"], 3)
)
@pytest.mark.parametrize(
    ("rule", "least", "adaptive"),
    few([("exact", 1, False), ("exact", 1, True), ("top:3,gap:1.0", 1, False), ("distance:1", 2, False)]),
)
def test_decoding_with_them_is_decoding_without(kind, rule, least, adaptive, monkeypatch):
    """Step by step the same, in tables that are kept and filled again; in fp32 by one machine's own products."""
    runner = EagerRunner(where(), "fp32")
    limits = Limits(max_length=7, min_length=2 if least > 1 else 0)

    def outputs() -> list[object]:
        found = []
        decoder = decoder_of(kind, runner, 1, rule, least, adaptive)
        for seed, more in enumerate(few(({}, {"forced_first": 8}, {}, {"forced_last": 8}, {"no_repeat_ngram": 2}), 2)):
            bounds = replace(limits, **more)
            decoded = decoder.decode(random_source(3, 6, seed=seed), bounds, capacity=2, trace=True)
            found.append((decoded.tokens, None if adaptive else decoded.traces))
        return found

    expected = outputs()
    monkeypatch.setattr(EagerRunner, "fuses", True)
    assert outputs() == expected


@pytest.mark.gpu
@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize(("rows", "places", "words"), [(1, 1, 1), (3, 7, 2), (9, 4, 5), (8, 12, 3), (5, 5, 1)])
def test_rows_are_refilled_as_tensor_code_does(rows, places, words, starts):
    """More rows than sentences and fewer, a ring that begins anew, sentences that were given up."""
    device, generator = where(), torch.Generator().manual_seed(rows + places)

    def numbers(most, *shape):
        return torch.randint(most, shape, generator=generator).to(device)

    taken = numbers(30, 1)
    added, ticket = taken + places - places // 4, numbers(9, places + 1) - 2
    moved = [(numbers(99, rows, words), numbers(99, places + 1, words), 0)]
    moved.append((numbers(99, 2, rows, words).double(), numbers(99, 2, places + 1, words).double(), 1))
    tokens, state = numbers(9, rows, 4), [numbers(3, rows) > 0, numbers(9, rows), numbers(9, rows).double()]
    found = []
    for own in (False, True):
        mine = [(there.clone(), here, dim) for there, here, dim in moved]
        (done, length, score), table, count = [one.clone() for one in state], tokens.clone(), taken.clone()
        held = Rows(table, length, table[:, 1], done, score, length, length, length.clone() if starts else None)
        act = kernel_of(mine) if own else partial(refill, mine)
        act(held, count, added, ticket, places, 7)
        found.append([*(one[0] for one in mine), table, count, done, length, score, held.start])
    for plain, ours in zip(*found, strict=True):
        assert plain is ours is None or torch.equal(plain, ours)
