"""A model folder that was named and is not there: one sentence, wherever it was to be opened, and before PyTorch is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from longstride.contract.bundled import BUNDLED
from longstride.contract.errors import ModelFolderError
from longstride.contract.suggestions import meant
from longstride.text.folders import recover

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
"""What Hugging Face calls a model: its owner, where it has one, and its name"""


def check_there(path: Path) -> None:
    """Refuse a path at which there is nothing; what a killed process moved away is put back first."""
    recover(path)
    if path.exists():
        return
    told = f"{path}: expected a model folder, found nothing"
    if near := meant(str(path), [BUNDLED, *_folders_beside(path)]):
        raise ModelFolderError(f"{told}{near}.")
    if _HUB_NAME.fullmatch(str(path)) and (path.parent == Path() or not os.path.lexists(path.parent)):
        raise ModelFolderError(
            f"{told}; models are never downloaded: `longstride import` makes a model folder of a Hugging Face folder "
            "on this machine."
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
