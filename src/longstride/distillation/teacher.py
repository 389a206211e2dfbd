"""Who teaches: a decoder with text wrapped around it, and the hashes that say exactly which one it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longstride.contract import DEFAULT_IDS, Decoder, Limits, SpecialIds


@dataclass(frozen=True)
class Teacher:
    """A decoder over one model or an ensemble. Ids come from `encode` and go to `decode` without EOS."""

    decoder: Decoder
    encode: Callable[[Sequence[str]], list[list[int]]]
    decode: Callable[[Sequence[Sequence[int]]], list[str]]
    hashes: tuple[str, ...]
    """one per model of the ensemble: of all that decides its outputs (configuration and weights)"""
    vocabulary: str
    """the hash of the tokenizer, or of both where source and target have their own"""
    limits: Limits
    longest_source: int | None = None
    """the most source tokens (EOS counted) it can read, where it has such a limit"""
    special: SpecialIds = DEFAULT_IDS

    @property
    def signature(self) -> str:
        """The decoder and all its options."""
        return self.decoder.signature
