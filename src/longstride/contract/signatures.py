"""Signatures: one line that names a decoder and all that could change its output; decoders that have one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, TypeVar

from longstride.contract.decoding import Decoder
from longstride.contract.options import as_dict
from longstride.contract.running import Runner
from longstride.version import __version__

Options = TypeVar("Options")


def signature(name: str, options: Any, runner: Runner, without: Collection[str] = ()) -> str:
    """``beam|width:5|length_penalty:gnmt|strength:0.6|n_best:1|eager|fp16|v0.1.0``: every option, defaults included,
    but for those `without` which the output is the same."""
    settings = [f"{key}:{_text(value)}" for key, value in as_dict(options).items() if key not in without]
    return "|".join([name, *settings, runner.name, runner.precision, f"v{__version__}"])


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return str(value).lower() if isinstance(value, bool | type(None)) else str(value)


class Signed(Decoder, Generic[Options]):
    """A decoder with options, and a runner that carries its programs out: with its name, these tell its output."""

    def __init__(self, runner: Runner, options: Options) -> None:
        self.options = options
        self._runner = runner

    @property
    def signature(self) -> str:
        """Its name, every option and the runner."""
        return signature(self.name, self.options, self._runner)
