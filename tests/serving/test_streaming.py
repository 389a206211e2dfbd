"""A stream's text only grows, and a character of which some bytes are missing waits for the others."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import longstride
from longstride.contract import DEFAULT_IDS, EOS, Event
from longstride.serving.streaming import GrowingText
from longstride.text.tokenizer import Tokenizer

TEXTS = st.text(st.sampled_from("aé ß1/:@🙂👍🏽漢字ж\u200d") | st.characters(codec="utf-8"), max_size=12)


@functools.cache
def bundled() -> Tokenizer:
    """Its vocabulary spells what it has no piece for in bytes."""
    return longstride.load(device="cpu").target_tokenizer


def translator() -> Any:
    text = longstride.translator.Translator.text
    return SimpleNamespace(
        folder=SimpleNamespace(special=DEFAULT_IDS),
        target_tokenizer=bundled(),
        text=lambda rows: text(SimpleNamespace(target_tokenizer=bundled()), rows),  # type: ignore[arg-type]
    )


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.data())
def test_what_is_streamed_is_the_text_and_never_half_a_character(text: str, data: st.DataObject) -> None:
    text = text.replace("\u2581", " ").replace("\ufffd", "").replace("\n", " ").replace("\r", " ")
    ids = bundled().encode(text)
    growing, said, begun = GrowingText(translator()), "", 0
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


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_a_text_is_the_same_from_ids_alone(text: str) -> None:
    """Numbers, URLs, emoji, any script."""
    text = text.replace("\u2581", " ")
    assert bundled().decode(bundled().encode(text)) == text
