"""The mean of several checkpoints' weights, tensor by tensor, so that only one tensor per file is ever in memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from longstride.contract import ModelFolderError, WorkError


def average(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """The mean weights of checkpoint folders, summed in float64; what is not floating point is taken from the last."""
    files = [path / "model.safetensors" for path in checkpoints]
    if not files:
        raise WorkError("averaging expects at least one checkpoint, found none.")
    with ExitStack() as stack:
        try:
            opened = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
        except (OSError, SafetensorError) as error:
            raise ModelFolderError(f"averaging expects readable checkpoints ({error}).") from None
        names = list(opened[-1].keys())
        for file, other in zip(files, opened, strict=True):
            if set(other.keys()) != set(names):
                raise ModelFolderError(f"{file}: expected the same parameters as {files[-1]}, found others.")
        result: dict[str, Tensor] = {}
        for name in names:
            newest = opened[-1].get_tensor(name)
            if not newest.is_floating_point():
                result[name] = newest
                continue
            # Begun with a weight, not with zero: what was frozen comes out bit for bit, -0 included.
            total = opened[0].get_tensor(name).double()
            for other in opened[1:]:
                total += other.get_tensor(name)
            result[name] = (total / len(opened)).to(newest.dtype)
        return result
