"""Tokenizers that would take minutes or all memory are refused, by trying them in a process that can be stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from longstride.contract import ModelFolderError
from longstride.interop.hf import tokenizer_trial
from longstride.interop.peers import SENTENCES
from longstride.text.hf_tokenizer.tokenizer import FILES

LARGEST = 64 << 20
"""Bytes of one file; the largest that are published have half of it."""
SECONDS, MEMORY = 5, 768 << 20
"""Processor time and address space to read the files and encode a few sentences: many times what published ones take.
An import reads them four times."""
LONG = "a" * 60
"""A text that makes patterns of exponential time slow."""
LINES = (*SENTENCES, f"{LONG}!", f"{' '.join(LONG)}!")


def check_tokenizer(folder: Path) -> None:
    """Refuse a folder whose tokenizer cannot be read, or read by, in reasonable time and memory."""
    for name in FILES:
        file = folder / name
        if file.is_file() and (size := file.stat().st_size) > LARGEST:
            raise ModelFolderError(f"{file}: expected at most {LARGEST:,} bytes, found {size:,}.")
    once = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "MALLOC_ARENA_MAX": "1", "RUST_BACKTRACE": "0"}
    script = [
        sys.executable,
        "-P",
        str(Path(tokenizer_trial.__file__)),
        str(folder.resolve()),
        str(SECONDS),
        str(MEMORY),
    ]
    try:
        ended = subprocess.run(
            [*script, *LINES], env={**os.environ, **once}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=4 * SECONDS, check=False,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        ended = -1
    if ended:
        raise ModelFolderError(
            f"{folder}: expected a tokenizer that reads plain sentences, within {SECONDS} seconds and "
            f"{MEMORY >> 20} MiB of its own, found one that takes more or fails."
        )
