"""A model folder that was named and is not there: one sentence, wherever it was to be opened, and before PyTorch is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from longstride.contract.bundled import BUNDLED
from longstride.contract.errors import ModelFolderError
from longstride.contract.suggestions import meant
from longstride.text.folders import recover

_HUB_NAME = re.compile(r"(?:https?:/+)?(?:(?:huggingface|hf)\.co/)?([\w-][\w.-]*(?:/[\w.-]+)?)")
"""A model's name at Hugging Face, with or without its owner, or the address of its page"""


def check_there(path: Path, what: str = "a model folder") -> None:
    """Refuse a path at which there is nothing; what a killed process moved away is put back first."""
    recover(path)
    if path.exists():
        return
    told = f"{path}: expected {what}, found nothing"
    if near := meant(str(path), [BUNDLED, *_folders_beside(path)]):
        raise ModelFolderError(f"{told}{near}.")
    if (hub := _HUB_NAME.fullmatch(str(path))) and (path.parent == Path() or not os.path.lexists(path.parent)):
        name = hub[1].rpartition("/")[2]
        raise ModelFolderError(
            f"{told}; models are never downloaded here. From the Hugging Face Hub: `hf download {hub[1]} --local-dir "
            f"{name}`, then `longstride import {name} -o {name}-longstride`."
        )
    raise ModelFolderError(f"{told}.")


def _folders_beside(path: Path) -> list[str]:
    """Model folders, and runs', in the folder in which this one was looked for, as they would be written there."""
    try:
        with os.scandir(path.parent) as entries:
            folders = [path.parent / entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []
    return [str(one) for one in folders if any((one / there).exists() for there in ("config.json", "model"))]
