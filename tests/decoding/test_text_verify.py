"""A given text as the draft: greedy's output whatever the text, and few iterations where it is like the output."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import longstride
from longstride.contract import EOS, Limits, OptionError, Source
from longstride.contract.trace import Trace
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify.copy_decoder import TextVerify, TextVerifyOptions
from longstride.systems.draft_verify.copying import find_place
from tests.decoding.test_copy_verify import WORD, corrected, fast_drafts
from tests.decoding.test_greedy import LIMITS
from tests.folders import write_folder
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_cuda_graph import taped
from tests.runtime.test_graph_exact import refuse

RUNNER = EagerRunner(precision="fp64")
VOCABULARY = 11
KINDS = st.sampled_from(["random", "equal", "edited", "empty", "long"])


# The slow twin: one sentence, plain lists.


def slow_nearest(text: list[int], output: list[int], longest: int, expected: int) -> int:
    """Try suffixes from long to short; of the places behind the first that occurs, the nearest, the earlier of two."""
    for size in range(min(longest, len(output)), 0, -1):
        ends = [end for end in range(size, len(text) + 1) if text[end - size : end] == output[-size:]]
        if ends:
            return min(ends, key=lambda end: (abs(end - expected), end))
    return expected


def slow_drafts(text: list[int], output: list[int], k: int, suffix: int) -> list[list[int]]:
    """What is drafted in each iteration until a verifier that wants just `output` (with EOS) has it all."""
    drafts, committed = [], []
    place: int | None = 0
    expected = 0
    while len(committed) < len(output):
        begun = slow_nearest(text, committed, suffix, expected) if place is None else place
        draft = text[begun : begun + k]
        drafts.append(draft)
        wanted = output[len(committed) :]
        stood = 0
        while stood < min(len(draft), len(wanted)) and draft[stood] == wanted[stood]:
            stood += 1
        committed += wanted[: stood + 1]
        along = text[begun + stood : begun + stood + 1] == wanted[stood : stood + 1]
        expected = (begun if along or stood else expected) + stood + 1
        place = begun + stood + 1 if along else None
    return drafts


@settings(max_examples=60)
@given(
    text=st.lists(WORD, max_size=15), output=st.lists(WORD, max_size=15), suffix=st.integers(1, 5),
    expected=st.integers(0, 20),
)  # fmt: skip
def test_a_lost_place_is_the_nearest_behind_the_longest_suffix(text, output, suffix, expected):
    text = [*text, EOS]
    found = find_place(
        torch.tensor([[*text, 0, 0]]),
        torch.tensor([len(text)]),
        torch.tensor([[*output, *text]]),  # what lies beyond the length is left over
        torch.tensor([len(output)]),
        suffix,
        torch.tensor([expected]),
    )
    assert found.tolist() == [slow_nearest(text, output, suffix, expected)]


@settings(max_examples=30)
@given(expected=st.integers(2, 12), data=st.data())
def test_of_two_places_equally_near_it_is_the_earlier(expected, data):
    """At random hardly one text in fifty has two."""
    away = data.draw(st.integers(1, expected - 1))
    text = torch.full((1, 2 * expected), 5)
    text[0, [expected - 1 - away, expected - 1 + away]] = 6
    found = find_place(
        text, torch.tensor([2 * expected]), torch.tensor([[6]]), torch.tensor([1]), 1, torch.tensor([expected])
    )
    assert found.tolist() == [expected - away]


@settings(max_examples=60)
@given(pairs=st.lists(corrected(), min_size=1, max_size=5), k=st.integers(1, 7), suffix=st.integers(1, 5))
def test_a_ragged_table_drafts_what_the_slow_twin_drafts(pairs, k, suffix):
    assert fast_drafts(pairs, k, suffix, given=True) == [slow_drafts(*pair, k, suffix) for pair in pairs]


@given(words=st.lists(WORD, max_size=25), k=st.integers(1, 30))
def test_a_text_that_is_the_output_takes_as_few_iterations_as_can_be(words, k):
    output = [*words, EOS]
    assert len(slow_drafts(output, output, k, 4)) == math.ceil(len(output) / (k + 1))


def drafts_for(kind: str, outputs: list[list[int]], seed: int) -> Source:
    """A text for each of the outputs."""
    generator = torch.Generator().manual_seed(seed)

    def words(count: int) -> list[int]:
        return torch.randint(0, VOCABULARY, (count,), generator=generator).tolist()

    texts = []
    for output in outputs:
        match kind:
            case "random":
                texts.append([*words(7), EOS])
            case "equal":
                texts.append([*output, EOS])
            case "edited":
                at = len(output) // 2
                texts.append([*output[:at], *words(1), *output[at + 1 :], EOS])
            case "empty":
                texts.append([])
            case _:
                texts.append([*output, *words(60)])
    return Source.of(texts)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 5), capacity=st.integers(1, 5), k=st.integers(1, 9),
    suffix=st.integers(1, 4), limits=LIMITS, kind=KINDS,
)  # fmt: skip
def test_any_text_gives_greedys_output(seed, rows, capacity, k, suffix, limits, kind):
    model, source = tiny_model(seed, sharpness=2.0), random_source(rows, 8, seed=seed)
    greedy = Greedy(model, RUNNER).decode(source, limits)
    source = replace(source, drafts=drafts_for(kind, greedy.tokens, seed))
    decoder = TextVerify(model, RUNNER, TextVerifyOptions(k=k, suffix=suffix))
    decoded = decoder.decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == greedy.tokens
    assert decoded.scores == pytest.approx(greedy.scores, abs=1e-9)
    assert decoded.traces is not None
    longest = limits.longest_output(source.longest) + 1
    for row, (trace, tokens) in enumerate(zip(decoded.traces, decoded.tokens, strict=True)):
        assert trace.replay() == tokens
        assert source.drafts is not None
        text = source.drafts.ids[row, : source.drafts.lengths[row]].tolist()[:longest]
        assert [list(event.draft) for event in trace.events] == slow_drafts(text, [*tokens, EOS], k, suffix)
        if kind == "equal":
            assert trace.iterations == math.ceil((len(tokens) + 1) / (k + 1))


@BOTH
@settings(max_examples=8)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), kind=KINDS)
def test_graphs_draft_by_texts_too(graphs: Graphs, seed: int, rows: int, kind: str) -> None:
    model, source = tiny_model(seed, torch.float32, sharpness=2.0), random_source(rows, 8, seed=seed)
    check_backend(model, source, graphs("fp32", 1, tell=refuse), kind, seed)


@settings(max_examples=8)
@given(seed=st.integers(0, 999), rows=st.integers(1, 9), kind=KINDS)
def test_recordings_draft_by_texts_too(seed, rows, kind):
    model, source = tiny_model(seed, torch.float32, sharpness=2.0), random_source(rows, 8, seed=seed)
    check_backend(model, source, taped()[0], kind, seed)


def check_backend(model, source, runner, kind, seed):
    limits = Limits(max_length=15)
    greedy = Greedy(model, runner).decode(source, limits)
    source = replace(source, drafts=drafts_for(kind, greedy.tokens, seed))
    decoded = TextVerify(model, runner, TextVerifyOptions(k=4)).decode(source, limits, capacity=4, trace=True)
    assert decoded.tokens == greedy.tokens
    assert decoded.traces is not None
    if kind == "equal":
        assert [trace.iterations for trace in decoded.traces] == [math.ceil((len(t) + 1) / 5) for t in decoded.tokens]


def test_without_any_draft_steps_are_greedys():
    model, source = tiny_model(2, sharpness=2.0), random_source(3, 8, seed=2)
    decoded = TextVerify(model, RUNNER).decode(source, Limits(max_length=9), trace=True)
    greedy = Greedy(model, RUNNER).decode(source, Limits(max_length=9), trace=True)
    assert (decoded.tokens, decoded.traces) == (greedy.tokens, greedy.traces)


def test_sentences_with_drafts_and_without_move_together():
    """Drafts that bring nothing are left off, and taken up again when new sentences come."""
    model, limits = tiny_model(0, sharpness=1.0, longest=128), Limits(max_length=100, max_extra=100)
    source = random_source(5, 9, seed=0)
    expected = Greedy(model, RUNNER).decode(source, limits).tokens
    session = TextVerify(model, RUNNER).start(5, limits, source.longest)
    found, tickets = {}, []
    for row in range(4):
        one = source.slice(row, row + 1)
        tickets += session.admit(replace(one, drafts=Source.of([[5, 6, EOS]])) if row % 2 else one)
    while len(found) < len(tickets):
        if not session.advance().drafted.any() and len(tickets) == 4:
            tickets += session.admit(source.slice(4, 5))
        found |= {one.ticket: one.hypotheses[0].tokens for one in session.take_finished()}
        session.settle()
    assert [found[ticket] for ticket in tickets] == expected


# Through the translator.


def test_lines_with_drafts_and_without_stand_side_by_side(tmp_path: Path):
    translator = longstride.load(write_folder(tmp_path / "model"), device="cpu", precision="fp64")
    assert "text-verify" in translator.possible
    lines = ["a b c", "", "t s r q p\nb b b", "b b b"]
    greedy = translator.translate(lines, "greedy")
    drafts = [greedy[0].text, "a", greedy[2].text, None]
    found = translator.translate(lines, drafts=drafts, batch=2, trace=True)
    assert [one.tokens for one in found] == [one.tokens for one in greedy]
    assert isinstance(found[0].trace, Trace)
    assert found[0].trace.iterations == math.ceil((len(found[0].tokens) + 1) / 9)
    assert found[3].trace is not None
    assert found[3].trace.drafted == 0


@pytest.mark.parametrize("lines", [[], [""], ["", " "]])
@pytest.mark.parametrize("drafted", [False, True])
def test_nothing_to_translate(tmp_path: Path, lines: list[str], drafted: bool):
    translator = longstride.load(write_folder(tmp_path / "model"), device="cpu")
    found = translator.translate(lines, drafts=["a"] * len(lines) if drafted else None)
    assert [one.text for one in found] == [""] * len(lines)


def test_what_does_not_go_together_is_refused(tmp_path: Path):
    translator = longstride.load(write_folder(tmp_path / "model"), device="cpu")
    with pytest.raises(OptionError, match="drafts expects one for each of 2 texts or none, found 1"):
        translator.translate(["a", "b"], drafts=["a"])
    with pytest.raises(OptionError, match="drafts expects as many lines as text 1 has, 1, found 2"):
        translator.translate(["a"], drafts=["a\nb"])
    with pytest.raises(OptionError, match="drafts expects the decoder text-verify, or none named, found beam"):
        translator.translate(["a"], "beam", drafts=["a"])
