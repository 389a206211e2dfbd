"""API keys from a file, each with limits of its own."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from fastapi import Request

from longstride.contract import InputError
from longstride.serving.errors import ServingError
from longstride.text.files import read_json

MINUTE = 60.0
SHORTEST = 8
"""Characters that a key has at least."""
LIMITS = ("requests_per_minute", "characters_per_minute")


@dataclass
class Allowance:
    """So much a minute, used up at any pace: what was used comes back little by little."""

    per_minute: float
    _left: float = field(init=False)
    _seen: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._seen = self.per_minute, monotonic()

    def has(self, amount: float) -> bool:
        """Whether so much may be taken now."""
        now = monotonic()
        self._left = min(self.per_minute, self._left + (now - self._seen) * self.per_minute / MINUTE)
        self._seen = now
        return self._left >= amount

    def take(self, amount: float) -> None:
        """Take it."""
        self._left -= amount


@dataclass
class Key:
    """Who asks, and how much that one may ask for."""

    name: str
    requests: Allowance | None = None
    characters: Allowance | None = None


class Keys:
    """The keys that are good. Without a file everybody may ask."""

    def __init__(self, keys: Mapping[str, Key] | None = None) -> None:
        self._keys = keys

    @staticmethod
    def read(path: Path) -> Keys:
        """A file ``{"keys": {"the key": {"name": "...", "requests_per_minute": 60, ...}}}``."""
        try:
            content = read_json(path)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: expected a JSON file of API keys ({error}).") from error
        told = content.get("keys") if isinstance(content, dict) else None
        if not isinstance(told, dict) or not told:
            raise InputError(f'{path}: expected {{"keys": {{"KEY": {{"name": ...}}}}}}, found something else.')
        keys = {}
        for number, (key, settings) in enumerate(told.items(), start=1):
            if len(key) < SHORTEST or not key.isascii():
                raise InputError(f"{path}: expected key {number} to have {SHORTEST} ASCII characters or more.")
            keys[key] = _key(f"{path}: key {number}", settings)
        return Keys(keys)

    @property
    def required(self) -> bool:
        """Whether requests need one."""
        return self._keys is not None

    def admit(self, request: Request, told: str | None, characters: int) -> None:
        """Count a request on its key; without a good one, or when its limit is reached, it is refused."""
        if self._keys is None:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        told = told or (token.strip() if scheme.lower() == "bearer" else "") or request.headers.get("x-api-key", "")
        if not told:
            raise ServingError("Please contact the server operator to get an API key", 400)
        found = None
        for key, one in self._keys.items():  # all of them, so that the time taken tells nothing
            if hmac.compare_digest(key.encode(), told.encode("utf-8", "replace")):
                found = one
        if found is None:
            raise ServingError("Invalid API key", 403)
        request.state.key = found.name  # for the log
        asked = ((found.requests, 1), (found.characters, characters))
        if not all(allowance is None or allowance.has(amount) for allowance, amount in asked):
            error = ServingError("Too many request limits violations", 429)
            error.retry_after = int(MINUTE)
            raise error
        for allowance, amount in asked:
            if allowance is not None:
                allowance.take(amount)


def _key(where: str, settings: object) -> Key:
    if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
        raise InputError(f"{where}: expected an object with a name.")
    if unknown := settings.keys() - {"name", *LIMITS}:
        raise InputError(f"{where}: expected {', '.join(LIMITS)}, found {sorted(map(str, unknown))[0]!r}.")
    limits = []
    for name in LIMITS:
        told = settings.get(name)
        if told is not None and (isinstance(told, bool) or not isinstance(told, int | float) or not told > 0):
            raise InputError(f"{where}: {name} expects a number above 0, found {told!r}.")
        limits.append(None if told is None else Allowance(float(told)))
    return Key(settings["name"], *limits)
