"""Exactness measured: nothing differs where nothing is wrong, and what is wrong is found, with its place and margin."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from longstride.bench.exactness import agreement, first_difference, outputs_of
from longstride.bench.workload import Workload
from longstride.contract import EOS, Decoder, Limits, OptionError, Source
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.verification import step as step_module
from longstride.verification.acceptance import Rule, Verdict, judge
from longstride.verification.exactness import SameShapeGreedy, margins, probe_batch_invariance
from tests.bench.conftest import detokenize
from tests.decoding import oracles
from tests.decoding.drafters import tiny_drafter
from tests.decoding.test_blockwise import random_heads
from tests.models import random_source, tiny_model

LIMITS = Limits(max_length=14)


def decoder_of(kind: str, runner: EagerRunner, seed: int = 0, **sizes: Any) -> tuple[Decoder, Greedy]:
    """A verifying decoder with a random model that drafts badly, and greedy of that model."""
    width = sizes.get("width", 16)
    model = runner.place(tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2, **sizes))
    greedy = Greedy(model, runner)
    if kind == "blockwise":
        heads = runner.place(random_heads(seed, 4, width=width))
        return Blockwise(model, heads, runner, BlockwiseOptions(k=4)), greedy
    if kind == "draft-verify":
        drafter = runner.place(tiny_drafter(seed, torch.float32, encoder="own", **sizes))
        return DraftVerify(model, drafter, runner, DraftVerifyOptions(k=3)), greedy
    return CopyVerify(model, runner, CopyVerifyOptions(k=3)), greedy


def workload_of(source: Source) -> Workload:
    sentences = [source.ids[row, : source.lengths[row]].tolist() for row in range(source.rows)]
    return Workload.of("toy", sentences, ["" for _ in sentences], detokenize)


KINDS = ("blockwise", "draft-verify", "copy-verify")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_a_verifying_decoder_is_greedy_by_its_own_steps(kind: str, precision: str) -> None:
    runner = EagerRunner(precision=precision)  # type: ignore[arg-type]
    decoder, greedy = decoder_of(kind, runner)
    workload = workload_of(random_source(13, 6, seed=1))
    everyone = range(workload.size)
    found = outputs_of(decoder, LIMITS, workload, everyone, 5)
    twin = SameShapeGreedy(decoder)
    same = agreement(found, outputs_of(twin, LIMITS, workload, everyone, 5), twin.signature, workload, none_asked)
    assert (same.sentences, same.differing, same.mismatches) == (13, 0, ())
    assert same.reference == f"greedy by the steps of {decoder.signature}"
    if precision == "fp64":
        narrow = agreement(found, outputs_of(greedy, LIMITS, workload, everyone, 5), "greedy", workload, none_asked)
        assert narrow.differing == 0


def none_asked(source: Source, prefixes: Any) -> list[float]:
    raise AssertionError("where nothing differs no margin is read")


def test_the_twin_takes_one_token_per_iteration_at_the_decoders_width() -> None:
    decoder, _ = decoder_of("blockwise", EagerRunner(precision="fp64"))
    source = random_source(4, 6, seed=3)
    decoded = SameShapeGreedy(decoder).decode(source, LIMITS, trace=True)
    assert decoded.traces is not None
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.iterations == len(tokens) + 1
        assert trace.drafted == 0
    widths = set()
    session = SameShapeGreedy(decoder).start(4, LIMITS, source.longest)
    verify = session.table.verify.function  # type: ignore[attr-defined]

    def watched(ids: Any, *arguments: Any) -> Any:
        widths.add(ids.shape[1])
        return verify(ids, *arguments)

    object.__setattr__(session.table.verify, "function", watched)  # type: ignore[attr-defined]
    session.admit(source)
    session.advance()
    assert widths == {4}


def test_a_loop_that_accepts_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: one drafted token more than the rule lets pass. Greedy by the same steps, without drafts, has it not."""

    def careless(rule: Any, min_block: int, proposal: Any, reading: Any, eos: int) -> Any:
        verdict = judge(rule, min_block, proposal, reading)
        # Not near an end: a row that goes past its longest output has no room in the table.
        more = ~(reading.top == EOS).any(dim=1) & ~(proposal.ids == EOS).any(dim=1)
        accepted = torch.minimum(verdict.accepted + more, proposal.count)
        drafted = torch.cat([proposal.ids, reading.top[:, -1:]], dim=1)
        ids = torch.where(torch.arange(drafted.shape[1]) < accepted[:, None], drafted, reading.top)
        committed = torch.where(accepted > verdict.accepted, accepted + 1, verdict.committed)
        return Verdict(accepted, ids, committed, ids.gather(1, committed[:, None] - 1)[:, 0])

    monkeypatch.setattr(step_module, "judge", careless)
    decoder, _ = decoder_of("blockwise", EagerRunner(precision="fp64"))
    workload = workload_of(random_source(9, 6, seed=2))
    found = outputs_of(decoder, LIMITS, workload, range(9), 4)
    expected = outputs_of(SameShapeGreedy(decoder), LIMITS, workload, range(9), 4)
    same = agreement(found, expected, "greedy", workload, lambda *told: margins(decoder, *told, LIMITS))
    assert same.differing == sum(found[place] != expected[place] for place in range(9)) > 0
    for one in same.mismatches:
        ours, theirs = (*found[one.sentence], EOS), (*expected[one.sentence], EOS)
        assert ours[: one.position] == theirs[: one.position]
        assert (one.found, one.expected) == (ours[one.position], theirs[one.position])
        assert one.found != one.expected
        assert one.margin > 0


class Roomy(EagerRunner):
    """Makes tables for the next power of two, as runners do that record."""

    def round_up(self, size: int, least: int = 1) -> int:
        return max(least, 1 << max(0, size - 1).bit_length())


@pytest.mark.parametrize("kind", [EagerRunner, Roomy])
def test_a_margin_is_that_of_the_slow_twin(kind: type[EagerRunner]) -> None:
    runner = kind(precision="fp64")
    decoder, greedy = decoder_of("draft-verify", runner, seed=4)
    source = random_source(5, 6, seed=4)
    limits = Limits(max_length=9, min_length=2, banned=(7,))
    outputs = greedy.decode(source, limits).tokens
    prefixes = [tokens[:place] for place, tokens in enumerate(outputs)]
    found = margins(decoder, source, prefixes, limits)
    for row, prefix in enumerate(prefixes):
        ids = source.ids[row, : source.lengths[row]].tolist()
        scores = oracles.log_probabilities([greedy._model], ids, prefix)
        choices = oracles.allowed(len(prefix), oracles.longest_output(ids, limits), limits, len(scores))
        best = sorted((float(scores[token]) for token in choices), reverse=True)
        assert found[row] == pytest.approx(best[0] - best[1] if len(best) > 1 else math.inf, abs=1e-8)


def test_where_outputs_part() -> None:
    assert first_difference((5, 6), (5, 6, 7)) == 2
    assert first_difference((5, 6, 8), (5, 6, 7)) == 2
    assert first_difference((), (5,)) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_bits_do_not_depend_on_places_on_a_cpu(kind: str, precision: str) -> None:
    decoder, _ = decoder_of(kind, EagerRunner(precision=precision), width=32)  # type: ignore[arg-type]
    found = probe_batch_invariance(decoder, random_source(8, 6, seed=5), LIMITS)
    assert (found.rows, found.width) == (8, 4)
    assert (found.moved, found.neighbours, found.slots, found.largest) == (0, 0, 0, 0.0)


def test_a_verifier_that_looks_at_places_is_found_out() -> None:
    decoder, _ = decoder_of("blockwise", EagerRunner(precision="fp64"))

    class Uneven(EagerRunner):
        """Adds a little in the last row, and in the second slot."""

        def call(self, program: Any, *arguments: Any) -> Any:
            result = super().call(program, *arguments)
            if program.name == "verify":
                result[0][-1] += 1e-9
                result[0][:, 1] += 1e-6
            return result

    decoder._runner = Uneven(precision="fp64")  # type: ignore[attr-defined]
    found = probe_batch_invariance(decoder, random_source(8, 6, seed=5), LIMITS)
    assert found.moved > 0
    assert found.neighbours == 0
    assert found.slots >= 8
    assert found.largest == pytest.approx(1e-6, rel=0.1)


def test_what_promises_nothing_is_refused() -> None:
    runner = EagerRunner(precision="fp64")
    model = tiny_model()
    heads = random_heads(0, 4)
    for options in (
        BlockwiseOptions(accept=Rule("top", 2)),
        BlockwiseOptions(min_block=2),
        BlockwiseOptions(adaptive=True),
    ):
        with pytest.raises(OptionError, match="Exactness expects accept=exact"):
            SameShapeGreedy(Blockwise(model, heads, runner, options)).start(1, LIMITS, 4)
    with pytest.raises(OptionError, match="Exactness expects a decoder that verifies drafts, found beam"):
        SameShapeGreedy(Beam([model], runner, BeamOptions())).start(1, LIMITS, 4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_exact_on_a_gpu_at_the_same_step_shape(kind: str, precision: str) -> None:
    runner = EagerRunner("cuda:0", precision)  # type: ignore[arg-type]
    sizes = {"width": 64, "feed_forward": 128, "heads": 4, "vocabulary": 200}
    decoder, greedy = decoder_of(kind, runner, seed=6, **sizes)
    workload = workload_of(random_source(200, 12, vocabulary=200, seed=6))
    everyone = range(workload.size)
    found = outputs_of(decoder, LIMITS, workload, everyone, 64)
    expected = outputs_of(SameShapeGreedy(decoder), LIMITS, workload, everyone, 64)

    def margin(source: Source, prefixes: Any) -> list[float]:
        return margins(decoder, source, prefixes, LIMITS)

    assert agreement(found, expected, "same steps", workload, margin).differing == 0
    places = probe_batch_invariance(decoder, random_source(64, 12, vocabulary=200, seed=7), LIMITS)
    assert (places.moved, places.neighbours, places.slots) == (0, 0, 0)
    narrow = agreement(found, outputs_of(greedy, LIMITS, workload, everyone, 64), "width 1", workload, margin)
    # Other shapes may round otherwise: then only a near-tie can have fallen the other way.
    assert all(one.margin < (0.01 if precision == "fp32" else 0.5) for one in narrow.mismatches)
