"""Longstride: the same translations, several times sooner."""

from longstride.contract import LongstrideError
from longstride.translator import Translation, Translator, load
from longstride.version import __version__

__all__ = ["LongstrideError", "Translation", "Translator", "__version__", "load"]
