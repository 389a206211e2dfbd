"""A stream's text only grows, and a character of which some bytes are missing waits for the others."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longstride
from longstride.contract import EOS, Event, InputError, OptionError
from longstride.text.hf_tokenizer.sentencepieces import cleaned_up
from longstride.text.tokenizer import Tokenizer
from longstride.translation import GrowingText

TEXTS = st.text(st.sampled_from("aé ß1/:@🙂👍🏽漢字ж\u200d") | st.characters(codec="utf-8"), max_size=12)


@functools.cache
def bundled() -> Tokenizer:
    """Its vocabulary spells what it has no piece for in bytes."""
    return longstride.load(device="cpu").target_tokenizer


def write(rows: list[list[int]]) -> list[str]:
    translator = SimpleNamespace(target_tokenizer=bundled())
    return longstride.translator.Translator.text(translator, rows)  # type: ignore[arg-type]


@settings(max_examples=200)
@given(TEXTS, st.data())
def test_what_is_streamed_is_the_text_and_never_half_a_character(text: str, data: st.DataObject) -> None:
    text = text.replace("\u2581", " ").replace("\ufffd", "").replace("\n", " ").replace("\r", " ")
    ids = bundled().encode(text)
    growing, said, begun = GrowingText(write, EOS), "", 0
    while begun < len(ids):
        end = data.draw(st.integers(begun + 1, len(ids)))
        event = Event(tuple(range(begun, end)), tuple(ids[begun:end]), 0, 0, True)
        tokens, new = growing.add(event)
        assert tokens == ids[begun:end]
        said, begun = said + new, end
        assert "\ufffd" not in said
        assert text.startswith(said)
    said += growing.add(Event((len(ids),), (EOS,), 0, 0, True))[1] + growing.end(ids)[1]
    assert said == text


@pytest.mark.parametrize("text", ["I do n't know .", "He 's here , they 've left !", "the ' old ' way", "a 'v n"])
def test_spaces_that_are_taken_out_later_wait(text: str) -> None:
    """Of a tokenizer that cleans spaces up, sign by sign."""
    growing, said = GrowingText(lambda rows: [cleaned_up("".join(map(chr, row))) for row in rows], EOS), ""
    ids = [ord(sign) for sign in text]
    for place, sign in enumerate(ids):
        said += growing.add(Event((place,), (sign,), 0, 0, True))[1]
    assert said + growing.end(ids)[1] == cleaned_up(text)


@settings(max_examples=200)
@given(TEXTS)
def test_a_text_is_the_same_from_ids_alone(text: str) -> None:
    """Numbers, URLs, emoji, any script."""
    text = text.replace("\u2581", " ")
    assert bundled().decode(bundled().encode(text)) == text


DECODERS = ["greedy", "draft-verify", "blockwise", "beam", "interleaved", "lattice", "sample"]
SENTENCES = st.lists(st.sampled_from(["Good morning.", "The report is late.", "Where is it?", "Call 0123 👍 now!"]))


@settings(max_examples=8)
@given(SENTENCES, st.sampled_from(DECODERS), st.sampled_from([" ", "\n"]))
def test_a_stream_is_the_translation(sentences: list[str], decoder: str, between: str) -> None:
    model, text = longstride.load(device="cpu"), between.join(sentences)
    pieces = list(model.stream(text, decoder))
    assert all(pieces)
    assert "".join(pieces) == model.translate(text, decoder)


def test_a_stream_comes_in_pieces_and_may_be_left() -> None:
    model = longstride.load(device="cpu")
    left = model.stream("The committee has decided to postpone the vote until next week.")
    first = next(left)
    left.close()
    whole = list(model.stream("The committee has decided to postpone the vote until next week."))
    assert whole[0] == first
    assert len(whole) > 3


def test_what_cannot_be_streamed_is_told_at_once() -> None:
    model = longstride.load(device="cpu")
    with pytest.raises(InputError, match="one text"):
        model.stream(["a", "b"])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="widht"):
        model.stream("a", "beam", widht=2)
