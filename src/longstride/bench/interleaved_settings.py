"""Quality records read as settings of interleaved decoding, autoregressive models among them as h = c = 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longstride.bench.draft_settings import Setting, part_of, read_signature
from longstride.bench.records import Latency, Quality

SIZES = {512: "base", 256: "small"}
AUTOREGRESSIVE = ("greedy", "beam")
LINKED = "linked"


@dataclass(frozen=True)
class Factorised:
    """How a record's model writes a sentence, and how it was searched."""

    record: Quality
    decoder: str
    width: int
    """of the beam; 1 is greedy search"""
    dedup: int
    interleaving: Mapping[str, Any]
    """options of the model's part; empty for an autoregressive model"""
    transformer: Mapping[str, Any]

    @staticmethod
    def of(record: Quality) -> Factorised | None:
        """None for decoders that neither are autoregressive nor interleave."""
        setting = Setting.of(record)
        if setting.decoder not in (*AUTOREGRESSIVE, "interleaved"):
            return None
        interleaving = setting.part("interleaving")
        if (setting.decoder == "interleaved") != bool(interleaving) and interleaving.get("h", 1) != 1:
            return None
        return Factorised(
            record,
            setting.decoder,
            beam_width(setting.decoder, setting.options),
            int(setting.options.get("dedup", "0")),
            interleaving,
            setting.part("model"),
        )

    @property
    def h(self) -> int:
        """Directions."""
        return int(self.interleaving.get("h", 1))

    @property
    def c(self) -> int:
        """Words per direction and step."""
        return int(self.interleaving.get("c", 1))

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return model_name(self.h, self.c)

    @property
    def ablation(self) -> str:
        """What differs from the paper's own model, if anything does."""
        found = self.interleaving
        told = [
            ("vanilla mask", found.get("mask", "relaxed") == "vanilla"),
            ("vanilla positions", found.get("signal", "interleaved") == "vanilla"),
            ("middle to side", found.get("order", "side-to-middle") == "middle-to-side"),
            ("independent directions", bool(found.get("independent"))),
            ("one word per step", bool(found.get("autoregressive"))),
            (LINKED, bool(found.get("link"))),
        ]
        return ", ".join(name for name, yes in told if yes)

    @property
    def plain(self) -> bool:
        """The paper's own model and search."""
        return not self.ablation and self.dedup == 0

    @property
    def size(self) -> str:
        """``base``, ``small``, or the width."""
        return size_name(self.transformer)

    @property
    def layers(self) -> int:
        """Of the decoder."""
        return int(self.transformer.get("decoder_layers", 0))

    @property
    def distilled(self) -> bool:
        """Whether it learnt from a teacher's output."""
        return bool(self.record.notes.get("data") == "distilled")

    @property
    def bleu(self) -> float | None:
        """The leading score."""
        return self.record.scores[0].value if self.record.scores else None

    @property
    def steps(self) -> float | None:
        """Per sentence."""
        counts, size = self.record.counts, self.record.workload.size
        return counts.iterations / size if counts and size else None

    def score(self, name: str) -> float | None:
        """By name."""
        return next((score.value for score in self.record.scores if score.name == name), None)


def beam_width(decoder: str, options: Mapping[str, str]) -> int:
    """How many hypotheses a decoder of these options keeps."""
    return 1 if decoder == "greedy" else int(options.get("width", "1"))


def size_name(model: Mapping[str, Any]) -> str:
    """What a model of these options is called by its width; nothing where they do not tell."""
    width = model.get("width")
    return SIZES.get(width, f"width {width}") if isinstance(width, int) else ""


def model_name(h: int, c: int) -> str:
    """As the paper calls the model of h directions and c words of each per step."""
    if h == 1:
        return "Transformer" if c == 1 else "vanilla SA"
    return ("IBDecoder" if h == 2 else "IMDecoder") + (" + SA" if c > 1 else "")


def factorised(group: Sequence[Quality]) -> list[Factorised]:
    """The records of a group that are about this; none where nothing interleaves in it."""
    found = [one for one in map(Factorised.of, group) if one is not None]
    return found if any(one.interleaving for one in found) else []


def full_depth(found: Sequence[Factorised], size: str) -> int:
    """The deepest decoder of a size: the others are students."""
    return max((one.layers for one in found if one.size == size), default=0)


def latency_model(record: Latency) -> tuple[str, int, int, int]:
    """Name, h, c and beam of a timed candidate."""
    part = part_of(record, "interleaving")
    h, c = int(part.get("h", 1)), int(part.get("c", 1))
    return model_name(h, c), h, c, beam_width(*read_signature(record.decoder))
