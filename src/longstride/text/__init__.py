"""Text to ids and back: tokenizers, corpus files, token-budget batches. Knows no model."""

from longstride.text.batches import BatchOptions, TokenBatches, Waste
from longstride.text.binarized import BinarizedCorpus, Manifest, binarize
from longstride.text.corpus import decode_lines, read_lines, read_parallel, write_lines
from longstride.text.filtering import FilterReport, LengthFilter
from longstride.text.tokenizer import (
    SentencePieceTokenizer,
    Tokenizer,
    WordsTokenizer,
    build_words,
    load_tokenizer,
    train_sentencepiece,
)

__all__ = [
    "BatchOptions",
    "BinarizedCorpus",
    "FilterReport",
    "LengthFilter",
    "Manifest",
    "SentencePieceTokenizer",
    "TokenBatches",
    "Tokenizer",
    "Waste",
    "WordsTokenizer",
    "binarize",
    "build_words",
    "decode_lines",
    "load_tokenizer",
    "read_lines",
    "read_parallel",
    "train_sentencepiece",
    "write_lines",
]
