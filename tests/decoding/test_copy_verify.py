"""The source as the draft: greedy's output whatever the model, and as few iterations as the paper says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import longstride
from longstride import model_folder
from longstride.contract import EOS, PAD, RESERVED, Limits, OptionError, Source
from longstride.model_folder import DecoderConfig, Part
from longstride.registry import DECODERS
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions
from longstride.systems.draft_verify.copying import LOST, TextDraft, find_place
from longstride.tasks.toys import SYMBOLS
from longstride.text.tokenizer import WordsTokenizer
from longstride.verification.acceptance import Rule
from longstride.verification.drafting import View
from tests.decoding.drafters import picked
from tests.decoding.test_greedy import LIMITS
from tests.folders import words, write_folder
from tests.models import random_source, tiny_model

RUNNER = EagerRunner(precision="fp64")

WORD = st.integers(5, 9)  # few words, so that many repeat


# The slow twin: aggressive decoding by the definition, one sentence, plain lists.


def slow_place(source: list[int], output: list[int], longest: int) -> int | None:
    """Try suffixes from long to short; the first that occurs just once in the source gives the place behind it."""
    for size in range(min(longest, len(output)), 0, -1):
        suffix = output[-size:]
        places = [end for end in range(size, len(source) + 1) if source[end - size : end] == suffix]
        if len(places) == 1:
            return places[0]
    return None


def slow_drafts(source: list[int], output: list[int], k: int, suffix: int) -> list[list[int]]:
    """What is drafted in each iteration until a verifier that wants just `output` (with EOS) has it all."""
    drafts = []
    committed: list[int] = []
    place: int | None = 0
    while len(committed) < len(output):
        if place is None:
            place = slow_place(source, committed, suffix)
        draft = source[place : place + k] if place is not None else []
        drafts.append(draft)
        wanted = output[len(committed) :]
        stood = 0
        while stood < min(len(draft), len(wanted)) and draft[stood] == wanted[stood]:
            stood += 1
        new = wanted[: stood + 1]
        committed += new
        along = place is not None and source[place : place + len(new)] == new
        place = place + len(new) if along and place is not None else None
    return drafts


def view_of(tokens: torch.Tensor, length: torch.Tensor, done: torch.Tensor) -> View:
    newest = tokens.gather(1, (length - 1).clamp(min=0)[:, None])[:, 0]
    return View(tokens, length, newest, done, torch.full_like(length, 99), torch.tensor([PAD]))


def fast_drafts(
    pairs: list[tuple[list[int], list[int]]], k: int, suffix: int, given: bool = False
) -> list[list[list[int]]]:
    """The same through the drafter, all rows side by side, with a verifier made of lists; texts may be `given`."""
    rows = len(pairs)
    source = Source.of([pair[0] for pair in pairs])
    source = replace(source, drafts=source) if given else source
    drafter = TextDraft(k, suffix, given)
    longest = max(max(map(len, pair)) for pair in pairs) + k + 1
    state = drafter.begin(rows, source.longest + 3, longest, torch.device("cpu"))
    drafter.admit(state, torch.arange(rows), source, None)  # type: ignore[arg-type]
    tokens = torch.zeros(rows, longest, dtype=torch.int64)
    length = torch.zeros(rows, dtype=torch.int64)
    drafts: list[list[list[int]]] = [[] for _ in pairs]
    while True:
        active = torch.tensor([int(length[row]) < len(pairs[row][1]) for row in range(rows)])
        if not active.any():
            return drafts
        proposal = drafter.propose(state, view_of(tokens, length, ~active), k)
        assert proposal.ids.shape == (rows, k)
        accepted = torch.zeros(rows, dtype=torch.int64)
        for row in [row for row in range(rows) if active[row]]:
            draft = proposal.ids[row, : proposal.count[row]].tolist()
            drafts[row].append(draft)
            wanted = pairs[row][1][int(length[row]) :]
            stood = 0
            while stood < min(len(draft), len(wanted)) and draft[stood] == wanted[stood]:
                stood += 1
            new = wanted[: stood + 1]
            tokens[row, length[row] : length[row] + len(new)] = torch.tensor(new)
            length[row] += len(new)
            accepted[row] = stood
        drafter.observe(state, accepted, view_of(tokens, length, ~active), torch.zeros(rows, 1))


@st.composite
def corrected(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """A source and an output that is it with a few words changed, dropped and put in."""
    source = draw(st.lists(WORD, max_size=20))
    output: list[int] = []
    for word in source:
        match draw(st.sampled_from(["keep"] * 6 + ["change", "drop", "insert"])):
            case "keep":
                output.append(word)
            case "change":
                output.append(draw(st.integers(5, 12)))
            case "insert":
                output += [draw(st.integers(5, 12)), word]
    return [*source, EOS], [*output, EOS]


@settings(max_examples=150)
@given(pairs=st.lists(corrected(), min_size=1, max_size=5), k=st.integers(1, 7), suffix=st.integers(1, 5))
def test_a_ragged_table_drafts_what_the_slow_twin_drafts(pairs, k, suffix):
    assert fast_drafts(pairs, k, suffix) == [slow_drafts(*pair, k, suffix) for pair in pairs]


@settings(max_examples=100)
@given(source=st.lists(WORD, min_size=1, max_size=15), output=st.lists(WORD, max_size=15), suffix=st.integers(1, 5))
def test_the_place_is_behind_the_suffix_that_occurs_once(source, output, suffix):
    source = [*source, EOS]
    found = find_place(
        torch.tensor([[*source, 0, 0]]),
        torch.tensor([len(source)]),
        torch.tensor([[*output, *source]]),  # what lies beyond the length is left over
        torch.tensor([len(output)]),
        suffix,
    )
    assert found.tolist() == [LOST if (slow := slow_place(source, output, suffix)) is None else slow]


@given(words=st.lists(WORD, max_size=25), k=st.integers(1, 30))
def test_what_needs_no_correction_is_copied_in_as_few_iterations_as_can_be(words, k):
    source = [*words, EOS]
    (drafts,) = fast_drafts([(source, source)], k, suffix=4)
    assert len(drafts) == math.ceil(len(source) / (k + 1))


def test_one_wrong_word_costs_the_bifurcation_and_one_word_to_find_the_place_again():
    source = [5, 6, 7, 8, 9, 10, 11, EOS]
    output = [5, 6, 7, 20, 9, 10, 11, EOS]  # 8 became 20
    (drafts,) = fast_drafts([(source, output)], k=16, suffix=4)
    # All of it; nothing behind 20, which the source lacks; all that is left behind 9.
    assert drafts == [source, [], [10, 11, EOS]]
    assert len(drafts) == 3  # greedy needs 8


def test_a_word_that_occurs_twice_does_not_tell_the_place_until_more_does():
    source = [5, 6, 7, 5, 6, 8, EOS]
    output = [20, 5, 6, 7, 5, 6, 8, EOS]  # one word put in front
    (drafts,) = fast_drafts([(source, output)], k=4, suffix=4)
    # Behind 20 nothing; behind "5" and "5 6" two places; behind "5 6 7" one.
    assert drafts[:5] == [source[:4], [], [], [], [5, 6, 8, EOS]]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    capacity=st.integers(1, 5),
    k=st.integers(1, 9),
    suffix=st.integers(1, 4),
    limits=LIMITS,
    adaptive=st.booleans(),
)
def test_exact_copy_verify_is_greedy(seed, rows, capacity, k, suffix, limits, adaptive):
    model = tiny_model(seed, sharpness=2.0)
    source = random_source(rows, 8, seed=seed)
    options = CopyVerifyOptions(k=k, adaptive=adaptive, suffix=suffix)
    with picked(seed):
        decoded = CopyVerify(model, RUNNER, options).decode(source, limits, capacity=capacity, trace=True)
    greedy = Greedy(model, RUNNER).decode(source, limits)
    assert decoded.tokens == greedy.tokens
    assert decoded.scores == pytest.approx(greedy.scores, abs=1e-9)
    assert decoded.traces is not None
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.replay() == tokens


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), suffix=st.integers(1, 4))
def test_the_session_drafts_what_the_slow_twin_drafts(seed, k, suffix):
    model = tiny_model(seed, sharpness=2.0)
    source = random_source(4, 8, vocabulary=8, seed=seed)
    decoder = CopyVerify(model, RUNNER, CopyVerifyOptions(k=k, suffix=suffix))
    decoded = decoder.decode(source, Limits(max_length=15), capacity=2, trace=True)
    assert decoded.traces is not None
    for row, (trace, tokens) in enumerate(zip(decoded.traces, decoded.tokens, strict=True)):
        ids = source.ids[row, : source.lengths[row]].tolist()
        expected = slow_drafts(ids, [*tokens, EOS], k, suffix)
        assert [list(event.draft) for event in trace.events] == expected


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), capacity=st.integers(1, 4))
def test_whole_drafts_all_that_is_left_of_the_source(seed, capacity):
    model, source = tiny_model(seed, sharpness=2.0), random_source(4, 8, vocabulary=8, seed=seed)
    decoder = CopyVerify(model, RUNNER, CopyVerifyOptions(k=1, whole=True))
    decoded = decoder.decode(source, Limits(max_length=15), capacity=capacity, trace=True)
    assert decoded.tokens == Greedy(model, RUNNER).decode(source, Limits(max_length=15)).tokens
    assert decoded.traces is not None
    for row, (trace, tokens) in enumerate(zip(decoded.traces, decoded.tokens, strict=True)):
        ids = source.ids[row, : source.lengths[row]].tolist()
        drafts = [list(event.draft) for event in trace.events]
        assert drafts[0] == ids  # EOS and all
        assert drafts == slow_drafts(ids, [*tokens, EOS], len(ids), 8)


def test_whole_commits_no_more_than_short_sources_have():
    """Whatever is asked for at least: it was said with longer ones in mind."""
    model, source = tiny_model(3), random_source(4, 8, seed=3)
    options = CopyVerifyOptions(k=64, min_block=40, whole=True)
    found = [CopyVerify(model, RUNNER, one).decode(source).tokens for one in (options, replace(options, whole=False))]
    assert found[0] == found[1]
    assert options.drafting_all(Source.of([[], []])).k == 16


def test_whole_leaves_no_question_how_much_is_drafted():
    with pytest.raises(OptionError, match="whole expects neither lengths nor adaptive"):
        CopyVerifyOptions(whole=True, adaptive=True)


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), rule=st.sampled_from(["top:2", "top:3,gap:1.0", "distance:1"]))
def test_an_approximate_batch_equals_its_rows_one_by_one(seed, rule):
    model = tiny_model(seed, sharpness=1.0)
    source = random_source(4, 8, seed=seed)
    decoder = CopyVerify(model, RUNNER, CopyVerifyOptions(k=4, accept=Rule.from_text(rule), min_block=2))
    limits = Limits(max_length=12)
    together = decoder.decode(source, limits).tokens
    assert together == [decoder.decode(source.slice(row, row + 1), limits).tokens[0] for row in range(source.rows)]


def test_accepting_everything_copies_the_source():
    model = tiny_model(3)
    source = random_source(5, 9, seed=3)
    options = CopyVerifyOptions(k=4, accept=Rule("top", 11))
    decoded = CopyVerify(model, RUNNER, options).decode(source)
    copied = [source.ids[row, : length - 1].tolist() for row, length in enumerate(source.lengths.tolist())]
    # The verifier's own word after a whole draft may lead away; where there is none, all is copied.
    assert [out[:4] for out in decoded.tokens] == [ids[:4] for ids in copied]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"k": 0}, "k expects a whole number from 1 to 1024, found 0"),
        ({"min_block": 0}, "min_block expects a whole number from 1 to 1025, found 0"),
        ({"k": 3, "min_block": 5}, r"min_block expects 1 to k \+ 1 \(4\), found 5"),
        ({"suffix": 0}, "suffix expects a whole number from 1 to 1024, found 0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], told: str):
    with pytest.raises(OptionError, match=told):
        CopyVerifyOptions(**options)


def test_two_vocabularies_are_refused():
    model = tiny_model(0, source_vocabulary=12, tie="target")
    with pytest.raises(OptionError, match="one vocabulary for source and target, found 12 and 11 ids"):
        CopyVerify(model, RUNNER)


def test_the_signature_tells_every_option():
    found = CopyVerify(tiny_model(0), RUNNER, CopyVerifyOptions(accept=Rule("top", 3, 1.0))).signature
    assert found.startswith(
        "copy-verify|k:16|accept:top:3,gap:1.0|min_block:1|adaptive:false|lengths:none|suffix:8|whole:false|eager|fp64|"
    )


# What a folder can do beyond what it lists.


def test_a_folder_from_before_copy_verify_can_do_it_all_the_same(tmp_path: Path):
    translator = longstride.load(write_folder(tmp_path / "old"), device="cpu", precision="fp64")
    assert translator.decoders == ["greedy", "beam"]
    assert "copy-verify" in translator.possible
    lines = ["a b c", "", "t s r q p", "b b b"]
    copied = translator.translate(lines, "copy-verify", k=3)
    assert [one.tokens for one in copied] == [one.tokens for one in translator.translate(lines, "greedy")]


def test_what_a_folder_lacks_the_parts_for_is_neither_possible_nor_listed(tmp_path: Path):
    translator = longstride.load(write_folder(tmp_path / "old"), device="cpu")
    needing_more = [name for name, kind in DECODERS.items() if set(kind.roles) != {"model"}]
    assert not set(needing_more) & set(translator.possible)
    with pytest.raises(OptionError, match="it has greedy, beam, sample, copy-verify, text-verify"):
        translator.decoder("nothing")


def test_a_pair_of_tokenizers_is_refused_even_if_equally_large(tmp_path: Path):
    target, source = words(), WordsTokenizer([*RESERVED, *reversed(SYMBOLS)])
    model = tiny_model(0, torch.float32, vocabulary=target.size, tie="target")
    decoders = {"greedy": DecoderConfig({"model": "model"})}
    parts = {"model": Part("transformer", model.options, model)}
    model_folder.write(tmp_path / "pair", parts, decoders, "greedy", target, source)
    translator = longstride.load(tmp_path / "pair", device="cpu")
    assert translator.possible == ["sample", "text-verify"]
    with pytest.raises(OptionError, match=r"has no decoder 'copy-verify'.*; it has greedy"):
        translator.decoder("copy-verify")
    listed = {**decoders, "copy-verify": DecoderConfig({"model": "model"})}
    model_folder.write(tmp_path / "listed", parts, listed, "greedy", target, source)
    with pytest.raises(OptionError, match="copy-verify expects one vocabulary for source and target"):
        longstride.load(tmp_path / "listed", device="cpu").decoder("copy-verify")


def test_limits_hold_while_copying():
    model = tiny_model(1, sharpness=2.0)
    source = random_source(3, 9, seed=1)
    for limits in (Limits(max_length=3), Limits(min_length=6, max_length=9), Limits(banned=(5, 6))):
        assert (
            CopyVerify(model, RUNNER).decode(source, limits).tokens
            == Greedy(model, RUNNER).decode(source, limits).tokens
        )
