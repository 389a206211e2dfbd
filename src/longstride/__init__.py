"""Longstride: the same translations, several times sooner."""

from longstride.version import __version__

__all__ = ["__version__"]
