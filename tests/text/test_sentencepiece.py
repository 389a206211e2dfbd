"""SentencePiece: reserved ids, exact round trips with the documented exceptions, training, damaged files."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import EOS, RESERVED, UNK, InputError, ModelFolderError, OptionError
from longstride.text.corpus import read_lines
from longstride.text.tokenizer import SentencePieceTokenizer, load_tokenizer, train_sentencepiece
from tests.text.conftest import made_up_lines

SPACE_SIGN = "\u2581"
text_without_line_ends = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))


def test_the_reserved_symbols_stand_first(tokenizer: SentencePieceTokenizer) -> None:
    assert tokenizer.pieces(range(5)) == list(RESERVED)
    assert tokenizer.size == 500


@given(text=text_without_line_ends)
def test_text_comes_back_but_for_the_space_sign(tokenizer: SentencePieceTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace(SPACE_SIGN, " ")


@given(text=st.lists(st.sampled_from([" ", "  ", "ab", "<s>", "\t", "é", "🙂", "\u2028"])).map("".join))
def test_whitespace_comes_back(tokenizer: SentencePieceTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.lists(st.sampled_from([*RESERVED, " ", "a", "<0x41>"])).map("".join))
def test_no_text_becomes_a_reserved_id(tokenizer: SentencePieceTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert all(id >= len(RESERVED) for id in ids)
    assert tokenizer.decode(ids) == text


@given(texts=st.lists(text_without_line_ends, max_size=8), threads=st.sampled_from([None, 1, 2]))
def test_many_lines_are_the_lines_one_by_one(
    tokenizer: SentencePieceTokenizer, texts: list[str], threads: int | None
) -> None:
    rows = tokenizer.encode_many(texts, threads)
    assert rows == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_many(rows, threads) == [tokenizer.decode(row) for row in rows]


def test_decoding_leaves_reserved_ids_out_but_shows_unknown_ones(tokenizer: SentencePieceTokenizer) -> None:
    ids = tokenizer.encode("hier und da")
    assert tokenizer.decode([0, 2, *ids, 4, EOS, 0]) == "hier und da"
    assert "\u2047" in tokenizer.decode([*ids, UNK])


def test_a_lone_surrogate_is_refused(tokenizer: SentencePieceTokenizer) -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        tokenizer.encode("a\ud800b")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_is_deterministic(tmp_path: Path, kind: Any) -> None:
    one, other = (train_sentencepiece(made_up_lines(300), 400, tmp_path / name, kind) for name in ("one", "other"))
    assert one.sha256 == other.sha256
    loaded = load_tokenizer(tmp_path / "one")
    assert (loaded.kind, loaded.size, loaded.sha256) == ("sentencepiece", 400, one.sha256)


def test_saved_and_pickled_tokenizers_are_the_same(tokenizer: SentencePieceTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.model")
    assert load_tokenizer(tmp_path / "tokenizer.model").sha256 == tokenizer.sha256
    assert pickle.loads(pickle.dumps(tokenizer)).encode("abc") == tokenizer.encode("abc")


def test_training_errors_name_what_is_wrong_and_write_nothing(tmp_path: Path) -> None:
    model = tmp_path / "out.model"
    with pytest.raises(OptionError, match=r"size expects more than 261 .* found 200"):
        train_sentencepiece(made_up_lines(10), 200, model)
    with pytest.raises(OptionError, match=r"^size expects at most \d+ for this text, found 30,000\.$"):
        train_sentencepiece(made_up_lines(10), 30000, model)
    with pytest.raises(
        OptionError, match=r"^vocabulary expects at least \d+ for the characters of this text, found 270"
    ):
        train_sentencepiece(["".join(map(chr, range(0x4E00, 0x4F00)))], 270, model, called="vocabulary")
    with pytest.raises(OptionError, match=r"^size expects text to make pieces of, found 300\.$"):
        train_sentencepiece([], 300, model)
    with pytest.raises(OptionError, match="kind expects bpe or unigram"):
        train_sentencepiece(made_up_lines(10), 400, model, "words")  # type: ignore[arg-type]
    (tmp_path / "bad.txt").write_bytes(b"good\n" * 50 + b"\xff\n")
    with pytest.raises(InputError, match="line 51"):
        train_sentencepiece(read_lines(tmp_path / "bad.txt"), 400, model)
    with pytest.raises(InputError, match="found none"):
        train_sentencepiece(read_lines(tmp_path / "missing.txt"), 400, model)
    assert not model.exists()


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00" * 100, gzip.compress(b"zipped", mtime=0)])
def test_a_damaged_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(ModelFolderError, match=r"tokenizer\.model"):
        load_tokenizer(tmp_path / "tokenizer.model")


def test_a_cut_or_missing_model_is_refused(tokenizer: SentencePieceTokenizer, tmp_path: Path) -> None:
    (tmp_path / "cut.model").write_bytes(tokenizer.serialized[: len(tokenizer.serialized) // 2])
    with pytest.raises(ModelFolderError, match=r"cut\.model"):
        load_tokenizer(tmp_path / "cut.model")
    for path in (tmp_path / "missing.model", tmp_path):
        with pytest.raises(ModelFolderError, match="expected a tokenizer"):
            load_tokenizer(path)


def test_a_model_with_other_reserved_ids_is_refused(tmp_path: Path) -> None:
    import sentencepiece

    lines = made_up_lines(300)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(tmp_path / "other"), vocab_size=120, minloglevel=2
    )
    with pytest.raises(ModelFolderError, match="expected the first five symbols"):
        load_tokenizer(tmp_path / "other.model")


def test_pieces_that_are_no_text_are_refused(tokenizer: SentencePieceTokenizer) -> None:
    """SentencePiece itself takes them, and fails when they are first spelt out."""
    piece = max((tokenizer.pieces([id])[0] for id in range(300, tokenizer.size)), key=len).encode()
    spoilt = tokenizer.serialized.replace(piece, b"\xff" * len(piece))
    assert spoilt != tokenizer.serialized
    with pytest.raises(ModelFolderError, match="expected"):
        SentencePieceTokenizer(spoilt)


def test_what_may_never_end_is_no_tokenizer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ModelFolderError, match=f"{path}: expected a tokenizer, could not read it .no regular file"):
            load_tokenizer(path)
