"""Quality records read as settings of lattice decoding: K, window, the scorer's depth, size and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longstride.bench.draft_settings import Setting
from longstride.bench.interleaved_settings import size_name
from longstride.bench.records import Quality

ONE_PASS = "non-autoregressive"


@dataclass(frozen=True)
class Latticed:
    """A record of the decoder `lattice`, or of the plain one-pass model that it is compared with."""

    record: Quality
    decoder: str
    options: Mapping[str, str]
    model: Mapping[str, Any]
    """options of the scorer or the one-pass model"""

    @staticmethod
    def of(record: Quality) -> Latticed | None:
        """None for other decoders."""
        setting = Setting.of(record)
        if setting.decoder not in ("lattice", ONE_PASS):
            return None
        return Latticed(record, setting.decoder, setting.options, setting.part("model"))

    @property
    def candidates(self) -> int:
        """K."""
        return int(self.options.get("candidates", "0"))

    @property
    def window(self) -> int:
        """Tokens that outputs may be shorter or longer than predicted."""
        return int(self.options.get("length_window", "0"))

    @property
    def usual(self) -> bool:
        """Bigrams of the tables' words, exact search, whole vocabulary: what the paper does."""
        wanted = {"order": "2", "construction": "tables", "normalise": "vocabulary", "n_best": "1", "dedup": "0"}
        return all(self.options.get(name, value) == value for name, value in wanted.items())

    @property
    def size(self) -> str:
        """``base``, ``small``, or the width."""
        return size_name(self.model)

    @property
    def layers(self) -> int:
        """Of the head, or of the one-pass decoder."""
        return int(self.model.get("decoder_layers", 0))

    @property
    def data(self) -> str:
        """``original`` or ``distilled``"""
        return str(self.record.notes.get("data", ""))

    @property
    def bleu(self) -> float | None:
        """The leading score."""
        return self.record.scores[0].value if self.record.scores else None


def latticed(group: Sequence[Quality]) -> list[Latticed]:
    """The records of a group that are about this, as the paper decodes."""
    found = [one for one in map(Latticed.of, group) if one is not None]
    return [one for one in found if one.usual]


class Beams:
    """BLEU of autoregressive beam search in the same group, which lattices are compared with."""

    def __init__(self, group: Sequence[Quality]) -> None:
        self._found: dict[tuple[str, str], float] = {}
        for record in group:
            setting = Setting.of(record)
            size = size_name(setting.part("model"))
            if setting.decoder == "beam" and size and setting.bleu is not None:
                self._found[size, str(record.notes.get("data", ""))] = setting.bleu

    def of(self, size: str, data: str) -> float | None:
        """Of the model of this size that learnt from the same data; where there is none, of any of this size."""
        some = [value for (other, _), value in sorted(self._found.items()) if other == size]
        return self._found.get((size, data), some[0] if some else None)

    def __str__(self) -> str:
        """Each with its size and data."""
        return "; ".join(f"{' '.join(filter(None, key))}: {value:.2f}" for key, value in sorted(self._found.items()))
