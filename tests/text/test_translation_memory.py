"""Translation memories: the nearest source by brute force, and files that are none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import InputError
from longstride.text.translation_memory import TranslationMemory, edit_distance, nearness, read_memory, words

SENTENCES = st.lists(st.sampled_from(["ab", "c", "d", "e", "f", "g", "h"]), min_size=1, max_size=9).map(" ".join)


def slow_distance(one: list[str], other: list[str]) -> int:
    """The table, row by row."""
    row = list(range(len(other) + 1))
    for place, element in enumerate(one, start=1):
        before, row = row, [place]
        for column, wanted in enumerate(other):
            row.append(min(before[column] + (element != wanted), before[column + 1] + 1, row[-1] + 1))
    return row[-1]


@given(one=st.lists(st.sampled_from("abcd"), max_size=80), other=st.lists(st.sampled_from("abcd"), max_size=80))
def test_the_distance_is_the_tables(one, other):
    assert edit_distance(one, other) == slow_distance(one, other)


@settings(max_examples=200)
@given(sources=st.lists(SENTENCES, max_size=40, unique=True), line=SENTENCES, least=st.sampled_from([0.3, 0.6, 0.9]))
def test_the_nearest_is_found(sources, line, least):
    found = TranslationMemory((source, str(number)) for number, source in enumerate(sources)).nearest(line, least)
    near = [nearness(words(line), words(source)) for source in sources]
    if not near or max(near) < least:
        assert found is None
    else:
        assert near[int(str(found))] == max(near)


def test_case_and_spaces_do_not_count_and_the_last_translation_does():
    memory = TranslationMemory([("The house, is  red.", "Alt."), ("The house, is  red.", "Neu.")])
    assert memory.nearest("the house , IS red .") == "Neu."
    assert memory.nearest("") is None
    assert memory.nearest("nothing of the kind") is None


def test_a_line_of_several_sentences_is_drafted_by_each_of_them() -> None:
    memory = TranslationMemory(
        [("Good morning.", "Guten Morgen."), ("Where is the old house?", "Wo ist das alte Haus?")]
    )
    assert memory.draft("Good morning. Where is the new house?") == "Guten Morgen. Wo ist das alte Haus?"
    assert memory.draft("Good morning. Nobody knows.") == "Guten Morgen."
    assert memory.draft("Nobody knows. Nobody asks.") is None
    whole = TranslationMemory([("Good morning.", "Morgen."), ("Good morning. Thank you.", "Guten Morgen, danke.")])
    assert whole.draft("Good morning. Thank you!") == "Guten Morgen, danke."


TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>The <bpt i="1">&lt;b></bpt>red<ept i="1">&lt;/b></ept> house.</seg></tuv>
<tuv xml:lang="de"><prop>x</prop><seg>Das rote Häuschen &amp; so.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Alone.</seg></tuv></tu>
</body></tmx>
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
@pytest.mark.parametrize("name", ["memory.tmx", "memory.TMX", "memory.tmx.gz"])
def test_tmx_both_ways_round(tmp_path: Path, encoding: str, name: str):
    content = TMX.format(encoding=encoding).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    memory = read_memory(tmp_path / name)
    assert memory.nearest("The red house.") == "Das rote Häuschen & so."
    assert memory.nearest("Das rote Häuschen & so!") == "The red house."
    assert memory.nearest("Alone.") is None


def test_tables(tmp_path: Path):
    (tmp_path / "memory.tsv").write_text("the red house\tdas rote Haus\t0.9\n\nempty\t\n")
    memory = read_memory(tmp_path / "memory.tsv")
    assert (len(memory), memory.nearest("the red house")) == (1, "das rote Haus")


BOMB = """<?xml version="1.0"?>
<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<tmx><body><tu><tuv><seg>&b;</seg></tuv><tuv><seg>&b;</seg></tuv></tu></body></tmx>
"""
OUTSIDE = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/hostname">]><tmx>&a;</tmx>'


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("m.tmx", b"", "m.tmx, line 1: expected a translation memory (TMX), found XML that cannot be read"),
        ("m.tmx", b"<tmx><body>", "line 1: expected a translation memory (TMX), found XML that cannot be read"),
        ("m.tmx", b"<tmx><body/></tmx>", "m.tmx: expected a translation memory, found no pair of texts in it."),
        ("m.tmx", b"<html/>", "m.tmx: expected a translation memory (<tmx>), found <html>."),
        ("m.tmx", BOMB.encode(), "line 2: expected a translation memory (TMX) without entities of its own, found one"),
        ("m.tmx", OUTSIDE.encode(), "line 1: expected a translation memory (TMX) without entities of its own"),
        ("m.tmx", b'<?xml version="1.0" encoding="x-none"?><tmx/>', "expected a translation memory (TMX)"),
        ("m.tmx.gz", b"none", "m.tmx.gz: expected a complete compressed file, found a damaged one"),
        ("m.tsv", b"", "m.tsv: expected a translation memory, found no pair of texts in it."),
        ("m.tsv", b"a\tb\nc\n", "m.tsv, line 2: expected a source, a tab and its translation, found no tab."),
        ("m.tsv", b"a\t\xff\n", "m.tsv, line 1: expected UTF-8, found byte 0xff"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, content: bytes, told: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_memory(tmp_path / name)
    assert told in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(InputError, match="expected a text file, found none"):
        read_memory(tmp_path / "m.tmx")
