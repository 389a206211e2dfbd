"""Every global source of randomness as plain tensors, to be saved in a checkpoint and put back. Writes no files."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int, rank: int) -> None:
    """Seed Python, numpy and torch, differently for each process."""
    mixed = int(np.random.SeedSequence((seed, rank)).generate_state(1, np.uint32)[0])
    random.seed(mixed)
    np.random.seed(mixed)
    torch.manual_seed(mixed)


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of every global generator that this process uses."""
    _, words, gauss = random.getstate()
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict)
    inner = numpy_state["state"]
    state = {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": _optional(gauss),
        "numpy": torch.from_numpy(np.append(inner["key"], inner["pos"]).astype(np.int64)),
        "numpy_gauss": _optional(numpy_state["gauss"] if numpy_state["has_gauss"] else None),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Put back what `random_state` gave."""
    gauss = state["python_gauss"].tolist()
    random.setstate((3, tuple(state["python"].tolist()), gauss[0] if gauss else None))
    *key, position = state["numpy"].tolist()
    gauss = state["numpy_gauss"].tolist()
    np.random.set_state(("MT19937", np.array(key, dtype=np.uint32), position, len(gauss), gauss[0] if gauss else 0.0))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def _optional(value: float | None) -> Tensor:
    """[0] or [1] float64: a number that may be absent."""
    return torch.tensor([] if value is None else [value], dtype=torch.float64)
