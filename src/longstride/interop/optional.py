"""Packages that only interop needs: imported when asked for, with a sentence for those who lack them."""

from __future__ import annotations

from typing import Any

from longstride.contract import OptionError
from longstride.runtime.libraries import silently


class MissingPackageError(OptionError):
    """A package that is not installed here."""


def package(name: str) -> Any:
    """Import a package of the `interop` extra, which is told to send nothing."""
    try:
        return silently(name)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != name.partition(".")[0]:
            raise  # the package is there and something it needs is not: its own message says more
        raise MissingPackageError(
            f"This expects the package {name}, which is not installed here: pip install 'longstride[interop]'."
        ) from None
