"""Parameters by name: freezing by pattern, and copying from another model (a warm start). Knows no optimizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from longstride.contract import ModelFolderError, OptionError


def named_state(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, the live tensors themselves; tied ones once, by their first name."""
    seen: set[int] = set()
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            state[name] = tensor
    return state


def matching(patterns: Sequence[str], names: Iterable[str], option: str) -> set[str]:
    """The names that any pattern matches: a glob over the whole name, or ``re:`` and a regular expression."""
    names = list(names)
    found: set[str] = set()
    for pattern in patterns:
        if pattern.startswith("re:"):
            try:
                expression = re.compile(pattern[3:])
            except re.error as error:
                raise OptionError(f"{option}: {pattern!r} is no regular expression ({error}).") from None
            hits = {name for name in names if expression.fullmatch(name)}
        else:
            hits = {name for name in names if fnmatchcase(name, pattern)}
        if not hits:
            raise OptionError(f"{option}: {pattern!r} matches no parameter. Available: {_some(names)}.")
        found |= hits
    return found


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Stop the matching parameters from being trained; the names of those frozen."""
    parameters = dict(model.named_parameters())
    frozen = matching(patterns, parameters, "freeze")
    for name in frozen:
        parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise OptionError(f"freeze: {', '.join(patterns) or 'the model as given'} leaves no parameter to train.")
    return sorted(frozen)


@dataclass(frozen=True)
class WarmStart:
    """What a warm start did, by name."""

    copied: tuple[str, ...]
    missing: tuple[str, ...]
    """of the model, left as they were initialised"""
    unused: tuple[str, ...]
    """of the other model, for which this one has no place"""


def warm_start(model: nn.Module, state: Mapping[str, Tensor], allow_missing: Sequence[str] = ()) -> WarmStart:
    """Copy another model's weights into this one by name.

    Whatever is missing there, or has another shape, must match one of the patterns `allow_missing` and then keeps its
    initial values. The optimizer is none of this function's business: a new run starts with a fresh one.
    """
    own = named_state(model)
    allowed = matching(allow_missing, own, "allow_missing")
    copied, missing = [], []
    for name, tensor in own.items():
        given = state.get(name)
        if given is not None and given.shape == tensor.shape:
            copied.append(name)
        elif name in allowed:
            missing.append(name)
        elif given is None:
            raise ModelFolderError(f"warm start expects weights for {name!r}. Available: {_some(list(state))}.")
        else:
            raise ModelFolderError(
                f"warm start expects shape {list(tensor.shape)} for {name!r}, found {list(given.shape)}."
            )
    with torch.no_grad():
        for name in copied:
            own[name].copy_(state[name])
    return WarmStart(tuple(copied), tuple(missing), tuple(name for name in state if name not in set(copied)))


def load_weights(model: nn.Module, state: Mapping[str, Tensor], where: str) -> None:
    """Copy weights whose names and shapes must be exactly the model's own."""
    own = named_state(model)
    if absent := [name for name in own if name not in state]:
        raise ModelFolderError(f"{where}: expected weights for {_some(absent)}, found none.")
    if extra := [name for name in state if name not in own]:
        raise ModelFolderError(f"{where}: found weights for {_some(extra)}, which the model does not have.")
    for name, tensor in own.items():
        if state[name].shape != tensor.shape:
            raise ModelFolderError(
                f"{where}: expected shape {list(tensor.shape)} for {name!r}, found {list(state[name].shape)}."
            )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most]) or "none"
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
