"""Draft and verify with a real drafter: greedy's output whatever it proposes, and proposals that are what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride import load, model_folder
from longstride.contract import DEFAULT_IDS, EOS, MASK, RESERVED, Limits, OptionError, Source, UsageError
from longstride.contract.options import parse
from longstride.model_folder import DecoderConfig, Part
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify.decoder import Draft, DraftOptions, DraftVerify, DraftVerifyOptions
from longstride.systems.draft_verify.drafter import ModelDrafter
from longstride.systems.draft_verify.model import begin_as
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.text.tokenizer import WordsTokenizer
from longstride.verification import batch_state
from longstride.verification.acceptance import Rule, forbidden_ids
from longstride.verification.draft_policy import DraftPolicy
from longstride.verification.drafting import View
from tests.decoding.drafters import KINDS, picked, slow_drafter_alone, slow_logits, slow_proposal, tiny_drafter
from tests.decoding.test_greedy import LIMITS
from tests.folders import LONGEST, words, write_folder
from tests.models import random_source, tiny_model
from tests.runtime.test_cuda_graph import taped

RUNNER = EagerRunner(precision="fp64")


def pair(seed: int, kind: dict[str, Any], **changes: Any) -> tuple[Any, Any]:
    return tiny_model(seed, sharpness=2.0, encoder_layers=2), tiny_drafter(seed, **kind, **changes)


def sentences(source: Source) -> list[list[int]]:
    return [source.ids[row, : source.lengths[row]].tolist() for row in range(source.rows)]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    capacity=st.integers(1, 5),
    k=st.integers(1, 6),
    limits=LIMITS,
    kind=KINDS,
    adaptive=st.booleans(),
)
def test_exact_is_greedy_for_any_drafter(seed, rows, capacity, k, limits, kind, adaptive):
    model, drafter = pair(seed, kind, block=6)
    source = random_source(rows, 6, seed=seed)
    greedy = Greedy(model, RUNNER).decode(source, limits)
    decoder = DraftVerify(model, drafter, RUNNER, DraftVerifyOptions(k=k, adaptive=adaptive))
    with picked(seed):
        decoded = decoder.decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == greedy.tokens
    assert decoded.scores == pytest.approx(greedy.scores, abs=1e-9)
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.replay() == tokens


@pytest.mark.parametrize("told", [{}, {"k": 6}, {"tree": 4}, {"accept": Rule.from_text("top:2")}, {"temperature": 0.5}])
def test_on_a_processor_several_rows_are_not_drafted_unless_options_say_how(told: dict[str, Any]) -> None:
    model, drafter = pair(1, {}, block=6)
    source, limits = random_source(3, 6, seed=1), Limits(max_length=8)
    decoder = DraftVerify(model, drafter, RUNNER, DraftVerifyOptions(**told))
    usual = decoder.without_slow_drafts()
    free = told.keys() <= {"temperature"}
    assert (usual is decoder) == (not free)
    assert usual.decode(source, limits).tokens == decoder.decode(source, limits).tokens
    for rows in (1, 3):
        drafted = usual.decode(source.slice(0, rows), limits, trace=True).traces
        assert any(event.drafted for trace in drafted for event in trace.events) == (rows == 1 or not free)
    unsaid = decoder.without_slow_drafts(
        unsaid=["k", "tree", "accept"]
    )  # a folder's defaults; `accept` changes outputs
    assert (unsaid is decoder) == ("accept" in told)
    assert unsaid.decode(source, limits).tokens == decoder.decode(source, limits).tokens


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 4), limits=LIMITS, kind=KINDS, adaptive=st.booleans())
def test_every_draft_is_its_slow_twins(seed, rows, limits, kind, adaptive):
    """Ragged, cached, in a table that is refilled: what is proposed is what one pass over a fresh canvas gives."""
    model, drafter = pair(seed, kind)
    source = random_source(rows, 6, seed=seed)
    options = DraftVerifyOptions(adaptive=adaptive)
    with picked(seed):
        decoded = DraftVerify(model, drafter, RUNNER, options).decode(source, limits, capacity=2, trace=True)
    for ids, trace in zip(sentences(source), decoded.traces, strict=True):
        prefix: list[int] = []
        for event in trace.events:
            assert event.draft is not None
            assert list(event.draft) == slow_proposal(drafter, model, ids, prefix, event.drafted, limits)
            prefix += event.ids
        if not kind["link"]:  # a chain may break limits, and then falls
            assert not {token for event in trace.events for token in event.draft} & {
                *DEFAULT_IDS.never_generated,
                *limits.banned,
            }


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), kind=KINDS)
def test_cached_drafting_equals_recomputing_along_any_prefix(seed, kind):
    """Rows that grow by anything from nothing to a whole block and one."""
    model, drafter = pair(seed, kind)
    generator = torch.Generator().manual_seed(seed)
    source = random_source(3, 6, seed=seed)
    limits = Limits(max_length=30)
    seam = ModelDrafter(drafter, model, RUNNER, 4, limits)
    with torch.inference_mode():
        state = seam.begin(3, source.longest, 35, torch.device("cpu"))
        seam.admit(state, torch.arange(3), source, model.encode_source(source.ids, source.lengths))
        tokens = torch.zeros(3, 35, dtype=torch.int64)
        words = torch.randint(5, 11, (3, 30), generator=generator)
        length = torch.zeros(3, dtype=torch.int64)
        for _ in range(6):
            longest, forbidden = limits.longest_outputs(source.lengths), forbidden_ids(limits, torch.device("cpu"))
            view = View(tokens, length, length, torch.zeros(3, dtype=torch.bool), longest, forbidden)
            proposal = seam.propose(state, view, 4)
            for row, ids in enumerate(sentences(source)):
                prefix = tokens[row, : length[row]].tolist()
                assert proposal.ids[row].tolist() == slow_proposal(drafter, model, ids, prefix, 4, limits)
            length = length + torch.randint(0, 6, (3,), generator=generator)
            tokens = torch.where(torch.arange(35) < length[:, None], torch.nn.functional.pad(words, (0, 5)), 6)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(2, 4),
    kind=KINDS,
    rule=st.sampled_from(["exact", "top:2", "top:3,gap:1.0"]),
)
def test_a_batch_equals_its_rows_one_by_one_drafts_too(seed, rows, kind, rule):
    model, drafter = pair(seed, kind)
    source = random_source(rows, 6, seed=seed)
    decoder = DraftVerify(model, drafter, RUNNER, parse(DraftVerifyOptions, {"accept": rule}))
    limits = Limits(max_length=12)
    together = decoder.decode(source, limits, trace=True)
    for row, ids in enumerate(sentences(source)):
        alone = decoder.decode(Source.of([ids]), limits, trace=True)
        assert alone.tokens[0] == together.tokens[row]
        assert [event.draft for event in alone.traces[0].events] == [
            event.draft for event in together.traces[row].events
        ]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    capacity=st.integers(1, 5),
    k=st.integers(1, 4),
    limits=LIMITS,
    kind=KINDS,
)
def test_the_drafter_alone_equals_its_slow_twin(seed, rows, capacity, k, limits, kind):
    model, drafter = pair(seed, kind)
    source = random_source(rows, 6, seed=seed)
    decoded = Draft(model, drafter, RUNNER, DraftOptions(k)).decode(source, limits, capacity=capacity, trace=True)
    for ids, tokens, trace in zip(sentences(source), decoded.tokens, decoded.traces, strict=True):
        assert tokens == slow_drafter_alone(drafter, model, ids, k, limits)
        assert limits.min_length <= len(tokens) <= int(limits.longest_outputs(torch.tensor(len(ids))))
        assert trace.replay() == tokens
        assert trace.iterations == -(-(len(tokens) + 1) // k)
        assert (trace.drafted, trace.accepted) == (0, 0), "nothing is verified"


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), kind=KINDS, word=st.integers(5, 10))
def test_a_causal_prefix_never_sees_what_comes_after_it(seed, kind, word):
    """With `full` the block sees all; with `causal`, the cache is right because a prefix slot's state never changes."""
    _, drafter = pair(seed, {**kind, "encoder": {"encoder": "own"}, "prefix": "causal"})
    source = torch.tensor([[5, 6, 7, EOS]])
    hidden = []
    drafter.decoder.norm.register_forward_hook(lambda module, inputs, output: hidden.append(output))
    for tail in ([word, MASK, MASK, MASK], [MASK, MASK, MASK, MASK]):
        drafter(torch.tensor([[6, 9, *tail]]), torch.tensor([2]), 4, source, None, None)
    torch.testing.assert_close(hidden[0][:, :2], hidden[1][:, :2])


def test_the_drafters_calls_are_counted_beside_the_verifiers():
    source = random_source(4, 6, seed=3)
    decoded = DraftVerify(tiny_model(3), tiny_drafter(0), RUNNER).decode(source)
    assert decoded.calls == 2 * decoded.iterations + 4  # and the verifier's encoder, in portions of a quarter each


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocabulary": 12}, "vocabulary of 12 pieces, found one with 11"),
        ({"encoder": "shared", "verifier_width": 32}, "width 32, found a verifier of width 16"),
        ({"encoder": "partial", "shared_layers": 3, "verifier_width": 16}, "1 encoder layers, found 3"),
    ],
)
@pytest.mark.parametrize("decoder", [DraftVerify, Draft])
def test_a_drafter_that_does_not_fit_is_refused(decoder, changes, words):
    with pytest.raises(OptionError, match=words):
        decoder(tiny_model(), tiny_drafter(**changes), RUNNER)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"k": 5}, "k expects 1 to 4, .* found 5"),
        ({"k": 0}, "k expects a whole number from 1 to 1024"),
        ({"accept": "top:0"}, "accept: top expects a whole number from 1 to 1000000, found 0"),
        ({"accept": "top:3,gap:-1"}, "gap expects a number of 0 or more"),
        ({"min_block": 6}, "min_block expects 1 to k \\+ 1 \\(5\\), found 6"),
        ({"min_block": 0}, "min_block expects a whole number from 1 to 1025"),
    ],
)
def test_bad_options_are_refused(values, words):
    with pytest.raises(OptionError, match=words):
        DraftVerify(tiny_model(), tiny_drafter(), RUNNER, parse(DraftVerifyOptions, values))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"block": 0}, "block expects a whole number from 1 to 1024"),
        ({"shared_layers": 2}, "shared_layers expects encoder: partial, found own"),
        ({"encoder": "partial", "shared_layers": 0}, "shared_layers expects a whole number from 1 to 1000"),
        ({"heads": 3}, "divisor"),
        ({"encoder": "borrowed"}, "own\\|shared\\|partial"),
    ],
)
def test_bad_architectures_are_refused(values, words):
    with pytest.raises(OptionError, match=words):
        parse(DrafterOptions, {"vocabulary": 11, **values})


def test_the_signature_names_the_block_it_uses():
    assert DraftVerify(tiny_model(), tiny_drafter(), RUNNER).signature.startswith("draft-verify|k:4|accept:exact|")
    assert Draft(tiny_model(), tiny_drafter(), RUNNER, DraftOptions(2)).signature.startswith("draft|k:2|")


def test_a_drafter_can_begin_as_its_verifier():
    model = tiny_model(1, encoder_layers=3)
    own = tiny_drafter(0, encoder_layers=3, activation="relu")
    begin_as(own, model)
    assert torch.equal(own.decoder.layers[1].attention.qkv.weight, model.decoder.layers[1].attention.qkv.weight)
    ids = torch.tensor([[5, 6, EOS]])
    partial = tiny_drafter(0, encoder="partial", shared_layers=2, verifier_width=16)
    begin_as(partial, model)
    assert torch.equal(partial.encoder.layers[0].attention.qkv.weight, model.encoder.layers[2].attention.qkv.weight)
    assert slow_logits(partial, model, ids[0].tolist(), []).isfinite().all()


# --- folders ---------------------------------------------------------------------------------------------------------


def write_drafted(path: Path, seed: int = 0, tokenizer: Any = None, **changes: Any) -> Path:
    """A folder with a tiny verifier and a tiny drafter."""
    tokenizer = tokenizer or words()
    model = tiny_model(seed, torch.float32, vocabulary=tokenizer.size, longest=LONGEST)
    drafter = tiny_drafter(seed + 1, torch.float32, vocabulary=tokenizer.size, longest=LONGEST, **changes)
    parts = {"model": Part("transformer", model.options, model), "drafter": Part("drafter", drafter.options, drafter)}
    roles = {"draft-verify": ("model", "drafter"), "draft": ("model", "drafter"), "greedy": ("model",)}
    decoders = {name: DecoderConfig({role: role for role in needed}) for name, needed in roles.items()}
    model_folder.write(path, parts, decoders, "draft-verify", tokenizer)
    return path


LINES = ["a b c d", "", "e f", "g h i j k l m n o p"]


@pytest.mark.parametrize("encoder", [{}, {"encoder": "shared", "verifier_width": 16}])
def test_a_folder_with_a_drafter_is_written_and_read(tmp_path, encoder):
    translator = load(write_drafted(tmp_path / "model", **encoder), precision="fp64", device="cpu")
    assert translator.decoders == ["draft-verify", "draft", "greedy"]
    greedy = [str(line) for line in translator.translate(LINES, "greedy")]
    assert [str(line) for line in translator.translate(LINES)] == greedy
    assert len(translator.translate(LINES, "draft", k=2)) == len(LINES)


def test_a_drafter_of_another_folder_drafts(tmp_path):
    """As far as its own positions reach: the shorter of the two limits what is read and written."""
    verifier = write_folder(tmp_path / "verifier", seed=5)
    drafter = write_drafted(tmp_path / "drafter")
    translator = load(verifier, precision="fp64", device="cpu", drafter=drafter)
    assert translator.decoders[0] == "draft-verify"
    assert {"draft", "greedy", "beam"} < set(translator.decoders)
    lines = translator.translate(LINES, trace=True)
    assert [str(line) for line in lines] == [str(line) for line in translator.translate(LINES, "greedy")]
    assert lines[0].trace.events[0].drafted == 4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: write_folder(path), "expected a model folder with a drafter, found the parts model"),
        (
            lambda path: write_drafted(path, tokenizer=WordsTokenizer([*RESERVED, "a", "b"])),
            "expects the vocabulary it was trained with, found another tokenizer in",
        ),
        (
            lambda path: write_drafted(path, encoder="shared", verifier_width=32),
            "reads an encoder of width 32, found a verifier of width 16",
        ),
    ],
)
def test_a_folder_without_a_fitting_drafter_is_refused(tmp_path, make, words):
    verifier, other = write_folder(tmp_path / "verifier"), make(tmp_path / "other")
    with pytest.raises(UsageError, match=words):
        load(verifier, device="cpu", drafter=other)


def test_who_may_not_look_runs_all_that_a_block_may_have_brought(monkeypatch):
    """On a device that would have to be waited for, drafts are those of a host that looks: the window covers them."""
    options = DraftVerifyOptions(accept=Rule("top", 5))  # so that drafts stand
    source, limits, found = random_source(3, 6, seed=3), Limits(max_length=12), []
    begun = batch_state.Batch
    for looks in (True, False):
        monkeypatch.setattr(batch_state, "Batch", lambda *given, **named: begun(*given, **{**named, "looks": looks}))  # noqa: B023
        for seed in range(3):
            model, drafter = pair(seed, {"encoder": {"encoder": "own"}, "prefix": "causal", "link": 0})
            decoded = DraftVerify(model, drafter, RUNNER, options).decode(source, limits, capacity=2, trace=True)
            found.append((decoded.tokens, decoded.traces))
    assert found[:3] == found[3:]


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 3), tree=st.sampled_from([0, 5]))
def test_idle_slots_draft_and_commit_nothing(seed, rows, tree):
    """Those that hold no sentence, and those of sentences that are done."""
    model, source = tiny_model(seed, sharpness=2.0, encoder_layers=2), random_source(rows, 6, seed=seed)
    decoder = DraftVerify(model, tiny_drafter(seed), RUNNER, DraftVerifyOptions(tree=tree))
    session = decoder.start(4, Limits(max_length=12), source.longest)
    session.admit(source)
    left = rows
    while left:
        step = session.advance()
        assert int(step.active.sum()) == left
        for told in (step.drafted, step.accepted, step.written):
            assert not told[~step.active].any()
        left -= len(session.take_finished())


def test_tables_are_no_wider_than_the_drafter_reads():
    """Where few shapes serve all lengths, and the verifier has more positions."""
    runner, _ = taped()
    model = runner.place(tiny_model(0, longest=64))
    source, limits = Source.of([[*[5, 6, 7, 8] * 8, EOS], [7, EOS]]), Limits(max_length=8)
    expected = Greedy(model, runner).decode(source, limits).tokens
    for soft_copy in (True, False):
        drafter = runner.place(tiny_drafter(0, block=1, longest=source.longest + 1, soft_copy=soft_copy))
        assert runner.round_up(source.longest) > drafter.options.longest + drafter.options.block
        for lengths in (None, DraftPolicy(((2, 0),))):
            decoder = DraftVerify(model, drafter, runner, DraftVerifyOptions(lengths=lengths))
            assert decoder.decode(source, limits).tokens == expected
