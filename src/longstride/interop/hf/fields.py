"""Another library's JSON settings, taken apart field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from longstride.contract import ModelFolderError
from longstride.contract.options import shown
from longstride.text.files import finite, read_json


class Fields:
    """The fields of one JSON object; each is taken once, and :meth:`unknown` names those that were not."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self.values = dict(values)
        self.place = place
        """names the file in errors"""
        self._taken: set[str] = set()

    @staticmethod
    def read(file: Path) -> Fields:
        """The fields of a file."""
        try:
            values = read_json(file)
        except FileNotFoundError:
            raise ModelFolderError(f"{file}: expected a Hugging Face folder's settings, found no file.") from None
        except (OSError, ValueError) as error:
            raise ModelFolderError(f"{file}: expected JSON, could not read it ({error}).") from None
        if not isinstance(values, dict):
            raise ModelFolderError(f"{file}: expected a JSON object, found {type(values).__name__}.")
        if name := next((name for name, value in values.items() if finite(value) != value), None):
            raise ModelFolderError(f"{file}: {name} expects finite numbers, found {shown(values[name])}.")
        return Fields(values, str(file))

    def take(self, name: str, default: Any = None) -> Any:
        """A field's value; null and absent mean the default."""
        self._taken.add(name)
        found = self.values.get(name)
        return default if found is None else found

    def number(self, name: str, default: int | None = None, least: int = 0) -> int:
        """A whole number; without a default it must be there."""
        found = self.take(name, default)
        if not isinstance(found, int) or isinstance(found, bool) or found < least:
            raise self.wrong(name, f"a whole number from {least} on", found)
        return found

    def optional_number(self, name: str, least: int = 0) -> int | None:
        """A whole number, or none."""
        return None if self.take(name) is None else self.number(name, least=least)

    def real(self, name: str, default: float) -> float:
        """A number."""
        found = self.take(name, default)
        if not isinstance(found, int | float) or isinstance(found, bool):
            raise self.wrong(name, "a number", found)
        return float(found)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        found = self.take(name, default)
        if not isinstance(found, bool):
            raise self.wrong(name, "true or false", found)
        return found

    def several(self, name: str) -> list[Any]:
        """A list; none is an empty one."""
        found = self.take(name, [])
        if not isinstance(found, list):
            raise self.wrong(name, "a list", found)
        return found

    def one_of(self, name: str, known: Mapping[str, Any], default: str) -> Any:
        """What a name stands for."""
        found = self.take(name, default)
        if not isinstance(found, str) or found not in known:
            raise self.wrong(name, ", ".join(known), found)
        return known[found]

    def leave(self, names: Iterable[str]) -> None:
        """Fields that change nothing that is generated."""
        self._taken.update(names)

    def neutral(self, values: Mapping[str, Any]) -> None:
        """Fields that change nothing while they have one of these values; any other is refused."""
        for name, allowed in values.items():
            known = allowed if isinstance(allowed, tuple) else (allowed,)
            found = self.take(name)
            if found is not None and found not in known:
                raise self.unsupported(name)

    def unknown(self) -> tuple[str, ...]:
        """Names that were not asked for."""
        return tuple(name for name, value in self.values.items() if name not in self._taken and value is not None)

    def wrong(self, name: str, expected: str, found: Any) -> ModelFolderError:
        """An error that says what a field should be."""
        return ModelFolderError(f"{self.place}: {name} expects {expected}, found {shown(found)}.")

    def unsupported(self, name: str) -> ModelFolderError:
        """An error that names a field that may change the outputs and is not supported."""
        return ModelFolderError(f"{self.place}: the field {name} = {shown(self.values[name])} is not supported.")


def is_id(value: Any) -> TypeGuard[int]:
    """Return True for a number that can be a token's id."""
    return type(value) is int and 0 <= value < 2**31
