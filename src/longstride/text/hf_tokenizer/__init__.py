"""Hugging Face tokenizers as they are: the same ids both ways, without transformers.

    settings        what tokenizer_config.json, special_tokens_map.json and added_tokens.json say
    languages       language codes of multilingual families
    sentencepieces  Marian and M2M100: SentencePiece models beside a vocab.json
    library         what the `tokenizers` library runs: tokenizer.json, or byte-level BPE from vocab.json and merges.txt
    tokenizer       one of these as the project's Tokenizer, in one file
    reading         a Hugging Face folder's files

Where versions of transformers differ, version 5 is followed: it cleans no spaces up unless the folder asks for it, and
MarianTokenizer normalises no punctuation when it encodes, whether sacremoses is installed or not.
"""

from longstride.text.hf_tokenizer.reading import HFTokenizers, read_hf_tokenizers
from longstride.text.hf_tokenizer.tokenizer import HFTokenizer

__all__ = ["HFTokenizer", "HFTokenizers", "read_hf_tokenizers"]
