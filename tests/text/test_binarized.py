"""The binarized corpus: what goes in comes out, from one file that is refused when stale or damaged."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from longstride.contract import EOS, PAD, InputError
from longstride.text import binarized as module
from longstride.text.binarized import BinarizedCorpus, binarize
from longstride.text.corpus import write_lines
from longstride.text.filtering import LengthFilter
from longstride.text.tokenizer import SentencePieceTokenizer, build_words
from tests.text.conftest import made_up_lines

ids = st.lists(st.integers(5, 70_000), max_size=6)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "text.en.xz", tmp_path / "text.de"
    write_lines(source, [*made_up_lines(50, seed=2), "", "short"])
    write_lines(target, [*made_up_lines(50, seed=3), "empty before", "x " * 200])
    return source, target


@given(pairs=st.lists(st.tuples(ids, ids), min_size=1, max_size=8))
def test_pairs_in_memory_end_in_eos(pairs: list[tuple[list[int], list[int]]]) -> None:
    corpus = BinarizedCorpus.from_pairs(pairs)
    assert len(corpus) == len(pairs)
    for index, (source, target) in enumerate(pairs):
        assert corpus.source.sentence(index).tolist() == [*source, EOS]
        assert corpus.target.sentence(index).tolist() == [*target, EOS]
    closed = BinarizedCorpus.from_pairs([([*source, EOS], [*target, EOS]) for source, target in pairs])
    assert closed.source.ids.tolist() == corpus.source.ids.tolist()


@given(pairs=st.lists(st.tuples(ids, ids), min_size=1, max_size=8), data=st.data())
def test_rows_are_padded_as_by_a_loop(pairs: list[tuple[list[int], list[int]]], data: st.DataObject) -> None:
    corpus = BinarizedCorpus.from_pairs(pairs)
    rows = data.draw(st.lists(st.integers(0, len(pairs) - 1), min_size=1))
    padded, lengths = corpus.target.padded(np.array(rows))
    widest = max(len(pairs[row][1]) + 1 for row in rows)
    expected = [[*pairs[row][1], EOS, *[PAD] * (widest - len(pairs[row][1]) - 1)] for row in rows]
    assert padded.tolist() == expected
    assert padded.dtype == np.int64
    assert lengths.tolist() == [len(pairs[row][1]) + 1 for row in rows]
    taken = corpus.take(np.array(rows))
    assert [taken.target.sentence(i).tolist() for i in range(len(rows))] == [[*pairs[row][1], EOS] for row in rows]
    assert taken.lines.tolist() == rows


@pytest.mark.parametrize("chunk", [7, 20_000])
def test_a_file_holds_what_one_by_one_tokenizing_gives(
    tokenizer: SentencePieceTokenizer, files: tuple[Path, Path], tmp_path: Path, monkeypatch, chunk: int
) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    seen: list[int] = []
    made = binarize(*files, tokenizer, tmp_path / "out", LengthFilter(max_tokens=100), progress=seen.append)
    assert seen[-1] == 52
    assert asdict(made.report) == {"seen": 52, "kept": 50, "too_short": 1, "too_long": 1, "out_of_ratio": 0, "cut": 0}
    corpus = BinarizedCorpus.load(tmp_path / "out", tokenizer.sha256)
    assert corpus.lines.tolist() == list(range(50))
    assert corpus.source.ids.dtype == np.uint16
    for index, (source, target) in enumerate(zip(made_up_lines(50, 2), made_up_lines(50, 3), strict=True)):
        assert corpus.source.sentence(index).tolist() == [*tokenizer.encode(source), EOS]
        assert corpus.target.sentence(index).tolist() == [*tokenizer.encode(target), EOS]
    assert {path.name for path in tmp_path.iterdir()} == {"text.en.xz", "text.de", "out"}


def test_sources_can_be_cut_and_still_end(tokenizer: SentencePieceTokenizer, files, tmp_path: Path) -> None:
    whole = binarize(*files, tokenizer, tmp_path / "whole")
    cut = binarize(*files, tokenizer, tmp_path / "cut", LengthFilter(cut_source=4))
    assert cut.report.cut == int((whole.source.lengths > 4).sum()) > 0
    for index in range(len(whole)):
        expected = whole.source.sentence(index).tolist()
        assert cut.source.sentence(index).tolist() == (expected if len(expected) <= 4 else [*expected[:3], EOS])
        assert cut.target.sentence(index).tolist() == whole.target.sentence(index).tolist()


def test_the_file_is_a_safetensors_file(tokenizer: SentencePieceTokenizer, files, tmp_path: Path) -> None:
    corpus = binarize(*files, tokenizer, tmp_path / "out")
    arrays = load_file(tmp_path / "out")
    assert np.array_equal(arrays["source_ids"], corpus.source.ids)
    assert np.array_equal(arrays["target_offsets"], corpus.target.offsets)


def test_source_and_target_tokenizers_may_differ(tokenizer: SentencePieceTokenizer, files, tmp_path: Path) -> None:
    words = build_words((f"w{number}" for number in range(70_000)), tmp_path / "words")
    corpus = binarize(*files, tokenizer, tmp_path / "out", target_tokenizer=words)
    assert corpus.target.ids.dtype == np.uint32
    with pytest.raises(InputError, match="stale: expected it to be made with the target tokenizer"):
        BinarizedCorpus.load(tmp_path / "out", tokenizer.sha256)


def test_a_stale_file_is_refused(tokenizer: SentencePieceTokenizer, files, tmp_path: Path) -> None:
    corpus = binarize(*files, tokenizer, tmp_path / "out")
    with pytest.raises(InputError, match=r"out is stale: expected .* source tokenizer abababababab"):
        BinarizedCorpus.load(tmp_path / "out", "ab" * 32)
    corpus.check_files(*files)
    write_lines(files[1], ["changed"])
    with pytest.raises(InputError, match=r"stale: expected .*text.de with SHA-256"):
        corpus.check_files(*files)
    files[0].unlink()
    with pytest.raises(InputError, match=r"text\.en\.xz: expected a text file"):
        corpus.check_files(*files)


def test_a_damaged_file_is_refused(tokenizer: SentencePieceTokenizer, files, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(InputError, match="found no file"):
        BinarizedCorpus.load(path)
    binarize(*files, tokenizer, path)
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])

    def with_header(changed: dict) -> bytes:
        encoded = json.dumps(changed).encode()
        return len(encoded).to_bytes(8, "little") + encoded + whole[8 + size :]

    def with_manifest(**changes: object) -> bytes:
        manifest = json.loads(header["__metadata__"]["longstride"]) | changes
        return with_header(header | {"__metadata__": {"longstride": json.dumps(manifest)}})

    def with_offsets(name: str, offsets: list) -> bytes:
        return with_header(header | {name: header[name] | {"data_offsets": offsets}})

    for content, message in (
        (b"", "header is cut short"),
        (b"text, not numbers", "header is cut short"),
        (whole[:-1], "should have"),
        (whole + b"x", "should have"),
        (with_header({"__metadata__": {}}), "expected a binarized corpus"),
        (with_header([]), "expected a binarized corpus"),  # type: ignore[arg-type]
        (with_manifest(version=2), "stale: expected format version 1, found 2"),
        (with_manifest(pairs=3), "is damaged"),
        (with_manifest(source_tokens=3), "is damaged"),
        (with_manifest(surprise=3), "expected a manifest"),
        (len(deep := b"[" * 200_000).to_bytes(8, "little") + deep, "too deep"),
        (with_offsets("source_ids", [64, 0]), "end before they begin"),
        (with_offsets("source_ids", [-2, 0]), "end before they begin"),
        (with_offsets("source_ids", ["x", "y"]), "expected a binarized corpus"),
        (with_offsets("source_ids", [0, float("inf")]), "expected a binarized corpus"),
        (with_offsets("source_ids", [1]), "expected a binarized corpus"),
        (with_header(header | {"__metadata__": {"longstride": 3}}), "expected a binarized corpus"),
        (whole[: 8 + size] + b"\xff" * 16 + whole[24 + size :], "rise from 0"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            BinarizedCorpus.load(path)


def test_offsets_that_fall_are_refused_in_numbers_of_any_kind(
    tokenizer: SentencePieceTokenizer, files, tmp_path: Path
) -> None:
    """Of numbers without a sign, every difference is one above zero."""
    path = tmp_path / "out"
    binarize(*files, tokenizer, path)
    note, mapped = module.read_arrays(path)
    arrays = {name: np.array(each) for name, each in mapped.items()}
    arrays["source_offsets"] = arrays["source_offsets"].astype(np.uint32)
    arrays["source_offsets"][1:3] = arrays["source_offsets"][2:0:-1]
    module.write_arrays(path, note, {name: (each.dtype.type, len(each), each) for name, each in arrays.items()})
    with pytest.raises(InputError, match="source_offsets that rise from 0"):
        BinarizedCorpus.load(path)


def test_errors_in_the_text_leave_nothing_behind(tokenizer: SentencePieceTokenizer, tmp_path: Path) -> None:
    write_lines(tmp_path / "a", ["x"] * 3)
    write_lines(tmp_path / "b", ["y"] * 4)
    write_lines(tmp_path / "empty", [""] * 3)
    with pytest.raises(InputError, match="found 3 in"):
        binarize(tmp_path / "a", tmp_path / "b", tokenizer, tmp_path / "out")
    with pytest.raises(InputError, match=r"found none: kept 0 of 3 pairs .* 3 too short"):
        binarize(tmp_path / "a", tmp_path / "empty", tokenizer, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "empty"}


def test_sides_of_different_size_are_refused() -> None:
    one, two = BinarizedCorpus.from_pairs([([5], [5])]), BinarizedCorpus.from_pairs([([5], [5])] * 2)
    with pytest.raises(InputError, match="found 1 source and 2 target"):
        BinarizedCorpus(one.source, two.target)


def test_ids_that_the_vocabulary_does_not_have_are_refused(
    tokenizer: SentencePieceTokenizer, files, tmp_path: Path
) -> None:
    corpus = binarize(*files, tokenizer, tmp_path / "out")
    corpus.check_ids(tokenizer.size, tmp_path / "out")
    with pytest.raises(InputError, match=r"out is damaged: expected ids below 5, found \d+"):
        corpus.check_ids(5, tmp_path / "out")
