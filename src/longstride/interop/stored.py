"""A model folder once more, with its weights stored in another precision: fp32, fp16, bf16 or int8."""

from __future__ import annotations

from pathlib import Path

from longstride import model_folder
from longstride.contract import OptionError
from longstride.model_folder import STORED, Part
from longstride.registry import part_options
from longstride.translator import Translator


def export_folder(translator: Translator, folder: Path, precision: str = "fp32") -> str:
    """Fill an empty folder; says what was made. A card and records stay behind: they tell of other weights."""
    if precision not in STORED:
        raise OptionError(f"--precision expects {', '.join(STORED)} for a model folder, found {precision!r}.")
    old = translator.folder
    source, target = old.tokenizers()
    parts = {
        name: Part(config.kind, part_options(old, name), translator.part(name), config.reuses)
        for name, config in old.parts.items()
    }
    model_folder.write(
        folder,
        parts,
        old.decoders,
        old.config.default_decoder,
        target,
        source if old.config.source_tokenizer is not None else None,
        {**old.config.provenance, "stored": {"precision": precision, "from_sha256": old.sha256}},
        STORED[precision],
        old.config.limits,
        sentences=old.config.sentences,
    )
    size = sum(file.stat().st_size for file in folder.iterdir())
    return f"A model folder with its weights in {precision}, {size / 1e6:.1f} MB."
