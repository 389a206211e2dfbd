"""Longstride: the same translations, several times sooner."""

from typing import TYPE_CHECKING

from longstride.version import __version__

if TYPE_CHECKING:
    from longstride.contract import LongstrideError
    from longstride.translator import Translation, Translator, load
else:

    def __getattr__(name: str) -> object:
        """What is not here yet is imported when it is asked for: `longstride --help` needs no PyTorch."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from longstride import contract, translator

        globals()[name] = found = getattr(contract if name == "LongstrideError" else translator, name)
        return found


__all__ = ["LongstrideError", "Translation", "Translator", "__version__", "load"]


def __dir__() -> list[str]:
    return __all__
