"""longstride.from_transformers: a model of transformers that is in memory, opened like a model folder."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longstride.contract import Precision
from longstride.interop.hf.importing import import_folder
from longstride.translator import Translator, load


def from_transformers(
    model: Any,
    tokenizer: Any,
    *,
    source_lang: str | None = None,
    target_lang: str | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
    runtime: str = "eager",
    threads: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> Translator:
    """What :func:`longstride.load` would give of a model and tokenizer of transformers, imported.

    They are saved to a temporary folder, which goes when the translator does. Outputs are not compared here: that is
    what `longstride import` does. `tell` hears what a person ought to know of how the model will generate.
    """
    home = tempfile.TemporaryDirectory(prefix="longstride-")
    theirs, ours = Path(home.name) / "hf", Path(home.name) / "model"
    model.save_pretrained(theirs)
    tokenizer.save_pretrained(theirs)
    found = import_folder(theirs, source_lang, target_lang)
    found.save(ours)
    for note in found.notes if tell is not None else ():
        tell(note)  # type: ignore[misc]
    translator = load(ours, device=device, precision=precision, runtime=runtime, threads=threads, tell=tell)
    weakref.finalize(translator, home.cleanup)  # parts are read when they are asked for
    return translator
