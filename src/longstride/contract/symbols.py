"""The five ids that every vocabulary reserves. Changing one would void every trained model and all distilled data."""

PAD = 0
UNK = 1
START = 2
EOS = 3
MASK = 4

RESERVED = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
"""The reserved pieces in the order of their ids."""

NEVER_GENERATED = (PAD, START, MASK)
"""Symbols that no decoder may emit: they mean something to the machinery, nothing to a reader."""
