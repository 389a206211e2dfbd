"""PyTorch sooner: the quarter of `import torch` that no translation needs is left until something asks for it.

That quarter are kernels, written in Python, that know of tensors their shapes alone: compiling and exporting work with
them, and nothing that a translation does. Their module registers them when it is imported; here it does so when one of
its names is first asked for. That leans on how PyTorch is put together, and so is done for the version for which it was
tried: any other is imported as ever.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

TRIED = ("2.11.", "2.13.")
"""Versions of PyTorch that this was tried with"""
LATER = "torch._meta_registrations"
NEEDED = "torch._prims.rng_prims"
"""What that module would have imported and random numbers need."""


def import_torch() -> None:
    """For commands that neither compile nor export, before anything else imports PyTorch."""
    try:
        known = version("torch").startswith(TRIED)
    except PackageNotFoundError:  # the import that comes next says so
        return
    if "torch" in sys.modules or not known:
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module("torch")
    finally:
        sys.meta_path.remove(finder)
    importlib.import_module(NEEDED)


class _Finder:
    """Finds that module where Python would."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of other modules nothing: Python goes on to look for them as ever."""
        found = PathFinder.find_spec(name, path, target) if name == LATER else None
        if found is not None and found.loader is not None:
            found.loader = _LaterLoader(found.loader)
        return found


class _LaterLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        """Not yet."""
        module.__dict__["_loader"] = self._loader
        module.__class__ = _Later


class _Later(ModuleType):
    """A module that is carried out when it is asked for a name, other than those that every module has."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by whoever looks through all modules
            raise AttributeError(name)
        loader = self.__dict__.pop("_loader")
        self.__class__ = ModuleType  # type: ignore[assignment]
        loader.exec_module(self)
        return getattr(self, name)
