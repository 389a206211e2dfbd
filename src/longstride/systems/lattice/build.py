"""From a corpus of text to candidate tables: tokenize, align, count, lay out. Writes nothing but temporary files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from longstride.contract import InputError, option
from longstride.contract.options import Options, as_dict
from longstride.systems.lattice.alignment import learn, read_pharaoh, write_pharaoh
from longstride.systems.lattice.counts import count, tables_of
from longstride.systems.lattice.tables import CountOptions, Tables
from longstride.text.binarized import binarize
from longstride.text.fast_align import AlignerOptions
from longstride.text.files import file_sha256
from longstride.text.filtering import LengthFilter
from longstride.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class BuildOptions(Options):
    """How tables are made."""

    filter: LengthFilter = option(factory=lambda: LengthFilter(max_tokens=128), help="Which pairs are counted.")
    aligner: AlignerOptions = option(factory=AlignerOptions, help="How alignments are learnt.")
    counted: CountOptions = option(factory=CountOptions, help="What is counted, and how much of it is kept.")


@dataclass(frozen=True)
class Text:
    """A parallel corpus, and who splits it into words."""

    source: Path
    target: Path
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer


def build(
    text: Text,
    options: BuildOptions | None = None,
    *,
    alignments: Path | None = None,
    save_alignments: Path | None = None,
    device: torch.device | str = "cpu",
    memory: float = 8.0,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> tuple[Tables, dict[str, Any]]:
    """Tables of a corpus, aligned here or by `alignments` in Pharaoh format, and what they were made from."""
    options = options or BuildOptions()
    started = time.monotonic()
    if alignments is not None and not alignments.is_file():
        raise InputError(f"{alignments}: expected alignments in Pharaoh format, found no file.")
    with tempfile.TemporaryDirectory() as folder:
        corpus = binarize(
            text.source,
            text.target,
            text.source_tokenizer,
            Path(folder) / "corpus",
            options.filter,
            target_tokenizer=text.target_tokenizer,
            progress=lambda done: progress("tokenizing", done, 0),
        )
        if alignments is not None:
            alignment = read_pharaoh(alignments, corpus, progress=lambda *at: progress("reading alignments", *at))
        else:
            alignment = learn(
                corpus, options.aligner, device=device, memory=memory, progress=lambda *at: progress("aligning", *at)
            )
        if save_alignments is not None:
            write_pharaoh(save_alignments, corpus, alignment)
        counts = count(
            corpus,
            alignment.links,
            text.target_tokenizer.size,
            text.source_tokenizer.size,
            options.counted,
            progress=lambda *at: progress("counting", *at),
        )
        tables = tables_of(counts, options.counted, text.target_tokenizer.sha256, text.source_tokenizer.sha256)
        assert corpus.manifest is not None
        manifest = {
            "source": text.source.name,
            "target": text.target.name,
            "source_sha256": corpus.manifest.source_sha256,
            "target_sha256": corpus.manifest.target_sha256,
            "source_tokenizer_sha256": text.source_tokenizer.sha256,
            "target_tokenizer_sha256": text.target_tokenizer.sha256,
            "alignment": alignment.made_by,
            "alignment_sha256": file_sha256(alignments) if alignments is not None else None,
            "pairs": len(corpus),
            "left_out": corpus.report.seen - len(corpus),
            "target_words": len(alignment.links),
            "from_no_word": int((alignment.links < 0).sum()),
            "several_links": alignment.doubled,
            "keys_and_words": len(counts.links[0]),
            "entries": tables.options.entries,
            "bytes": sum(buffer.numel() * buffer.element_size() for buffer in tables.buffers()),
            "options": as_dict(options),
            "minutes": round((time.monotonic() - started) / 60, 2),
        }
    return tables, manifest
