"""Corpus files: what a line is, compression, and errors that name file and line."""

from __future__ import annotations

import codecs
import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import InputError
from longstride.text.corpus import read_lines, read_parallel, write_lines

line = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])).filter(lambda t: not t.endswith("\r"))
endings = st.sampled_from(["txt", "gz", "xz"])


@given(lines=st.lists(line), ending=endings)
def test_written_lines_are_read_back(tmp_path_factory: pytest.TempPathFactory, lines: list[str], ending: str) -> None:
    path = tmp_path_factory.mktemp("corpus") / f"lines.{ending}"
    assert write_lines(path, lines) == len(lines)
    assert list(read_lines(path)) == lines
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("a\u2028b\x0bc\x0cd\x85e\rf\r\n\n\r\nlast".encode())
    assert list(read_lines(tmp_path / "text")) == ["a\u2028b\x0bc\x0cd\x85e\rf", "", "", "last"]


@pytest.mark.parametrize("ending", ["txt", "gz"])
def test_one_byte_order_mark_at_the_beginning_is_no_text(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"lines.{ending}"
    raw = "\ufeffa\ufeffb\n\ufeffc\n".encode()
    path.write_bytes(gzip.compress(raw) if ending == "gz" else raw)
    assert list(read_lines(path)) == ["a\ufeffb", "\ufeffc"]
    write_lines(path, ["\ufeffkept"])
    assert list(read_lines(path)) == ["\ufeffkept"]


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_compressed_files_are_compressed_and_equal_for_equal_lines(tmp_path: Path, ending: str) -> None:
    write_lines(tmp_path / f"a.{ending}", ["same"] * 9)
    write_lines(tmp_path / f"b.{ending}", ["same"] * 9)
    raw = (tmp_path / f"a.{ending}").read_bytes()
    assert raw == (tmp_path / f"b.{ending}").read_bytes()
    assert {"gz": gzip, "xz": lzma}[ending].decompress(raw) == b"same\n" * 9


def test_invalid_utf8_is_named_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine\nstill\nab\xffcd\n")
    with pytest.raises(InputError, match=r"bad.txt, line 3: expected UTF-8, found byte 0xff at byte 3"):
        list(read_lines(tmp_path / "bad.txt"))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("Good morning.\n".encode("utf-16"), "UTF-16"),
        (codecs.BOM_UTF16_BE + "Good morning.\n".encode("utf-16-be"), "UTF-16"),
        (gzip.compress(b"Good morning.\n"), "gzip"),
        (lzma.compress(b"Good morning.\n"), "xz"),
    ],
)
def test_what_a_file_is_instead_of_text_is_said_with_what_to_do(tmp_path: Path, content: bytes, found: str) -> None:
    (tmp_path / "in.txt").write_bytes(content)
    with pytest.raises(InputError, match=rf"in\.txt: expected UTF-8, found .*{found}.*; .*\w\.$"):
        list(read_lines(tmp_path / "in.txt"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.txt"):
        list(read_lines(tmp_path / "missing.txt"))
    with pytest.raises(InputError, match="could not be read"):
        list(read_lines(tmp_path))


@pytest.mark.parametrize("ending", ["gz", "xz"])
@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-10], lambda raw: b"plain text\n", lambda raw: raw[:30] + raw[40:]]
)
def test_a_damaged_compressed_file_is_named(tmp_path: Path, ending: str, damage) -> None:
    path = tmp_path / f"text.{ending}"
    write_lines(path, (str(number) for number in range(1000)))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=f"text.{ending}"):
        list(read_lines(path))


def test_parallel_files_are_read_side_by_side(tmp_path: Path) -> None:
    write_lines(tmp_path / "a", ["1", "2"])
    write_lines(tmp_path / "b.gz", ["x", ""])
    assert list(read_parallel(tmp_path / "a", tmp_path / "b.gz")) == [("1", "x"), ("2", "")]


@given(left=st.integers(0, 5), right=st.integers(0, 5))
def test_different_line_counts_are_both_named(tmp_path_factory: pytest.TempPathFactory, left: int, right: int) -> None:
    folder = tmp_path_factory.mktemp("parallel")
    write_lines(folder / "a", ["x"] * left)
    write_lines(folder / "b", ["y"] * right)
    if left == right:
        assert len(list(read_parallel(folder / "a", folder / "b"))) == left
    else:
        with pytest.raises(InputError, match=f"found {left} in .*a and {right} in .*b"):
            list(read_parallel(folder / "a", folder / "b"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    write_lines(path, ["old"])
    for bad, message in (("a\nb", "line 2: expected one line"), ("\ud800", "line 2: expected text")):
        with pytest.raises(InputError, match=message):
            write_lines(path, ["new", bad])
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]
