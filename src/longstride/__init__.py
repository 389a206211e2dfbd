"""Longstride: the same translations, several times sooner.

    translator = longstride.load()                     the bundled model, English to German; load(FOLDER): another
    translator.translate("Good morning!")              a text, or a list of them; help(translator.translate) says more
    translator.decoders                                the ways of generating that the model has, its default first
    translator.translate(lines, "beam", width=4)       another of them, with its options (`longstride decoders`)

`from_transformers(model, tokenizer)` makes a Translator of a model of Hugging Face's, `longstride adapt` on the command
line gives one a drafter, and errors that a person can mend are each a LongstrideError.
"""

from typing import TYPE_CHECKING

from longstride.version import __version__

if TYPE_CHECKING:
    from longstride.contract import LongstrideError
    from longstride.interop.hf.importing import from_transformers
    from longstride.translator import Translation, Translator, load
else:
    _HOMES = {"LongstrideError": "contract", "from_transformers": "interop.hf.importing"}
    """Modules of names that are not the translator's"""

    def __getattr__(name: str) -> object:
        """What is not here yet is imported when it is asked for: `longstride --help` needs no PyTorch."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        home = import_module(f"longstride.{_HOMES.get(name, 'translator')}")
        globals()[name] = found = getattr(home, name)
        return found


__all__ = ["LongstrideError", "Translation", "Translator", "__version__", "from_transformers", "load"]


def __dir__() -> list[str]:
    return __all__
