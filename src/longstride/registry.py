"""Every kind of part, decoder and objective there is, by the name it has in model folders, recipes and commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from longstride.contract import Decoder, Objective, OptionError, Runner
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy, GreedyOptions
from longstride.systems.autoregressive.objective import AutoregressiveObjective, AutoregressiveObjectiveOptions


@dataclass(frozen=True)
class PartKind:
    """A kind of weights: its options and how it is built from them."""

    options: type
    build: Callable[[Any], nn.Module]


@dataclass(frozen=True)
class DecoderKind:
    """A way of generating: what it needs and how it is put together."""

    summary: str
    options: type
    roles: tuple[str, ...]
    build: Callable[[Mapping[str, Any], Runner, Any], Decoder]


@dataclass(frozen=True)
class ObjectiveKind:
    """A way of training: its options, how it is built, and the decoders a model trained so offers."""

    options: type
    build: Callable[[Any], Objective]
    decoders: tuple[str, ...]


PARTS: dict[str, PartKind] = {"transformer": PartKind(TransformerOptions, Transformer)}

DECODERS: dict[str, DecoderKind] = {
    "greedy": DecoderKind(
        "the most likely token, one after another",
        GreedyOptions,
        ("model",),
        lambda parts, runner, options: Greedy(parts["model"], runner, options),
    ),
    "beam": DecoderKind(
        "the best of several hypotheses, with exact early stopping",
        BeamOptions,
        ("model",),
        lambda parts, runner, options: Beam([parts["model"]], runner, options),
    ),
}

OBJECTIVES: dict[str, ObjectiveKind] = {
    "autoregressive": ObjectiveKind(AutoregressiveObjectiveOptions, AutoregressiveObjective, ("greedy", "beam")),
}


def find(kinds: Mapping[str, Any], name: str, what: str) -> Any:
    """Look a kind up; an unknown name is answered with those there are."""
    if name not in kinds:
        raise OptionError(f"There is no {what} {name!r}; there are {', '.join(sorted(kinds))}.")
    return kinds[name]
