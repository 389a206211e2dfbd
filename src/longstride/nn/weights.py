"""Weights out of files that somebody else may have made: what a file has is compared with what a module needs first.

A module is built on the meta device, which takes no memory, and stops being built as soon as it has more weights than
the file. Only when every name, shape and type agrees is it built for good: so options that ask for a million layers or
a width of a million cost milliseconds. Knows no folder.

Matrices may be stored in int8, as whole numbers from -127 to 127 under their name and what one of them is worth, for
each row, under NAME.scale: w = code * scale. They are floats again as soon as they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.overrides import TorchFunctionMode

from longstride.contract import ModelFolderError, OptionError, WorkError

Module = TypeVar("Module", bound=nn.Module)

_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_DTYPES = {
    **_FLOATS,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
SCALE = ".scale"
"""Behind the name of a matrix in int8: what one of its whole numbers is worth, a float32 for each row."""
SCALED = "I8 with scales"
"""The type of a matrix that is stored so."""
_LEVELS = 127
_LARGEST_TABLES = 1 << 31
"""Bytes of what a module computes instead of reading, such as tables of positions."""


@dataclass(frozen=True)
class Stored:
    """What a file says of one tensor in it."""

    shape: tuple[int, ...]
    dtype: str


def write_tensors(tensors: dict[str, Tensor], file: Path, metadata: dict[str, str] | None = None) -> None:
    """A safetensors file of these; what the system refuses, a full disk among it, is said."""
    try:
        save_file(tensors, file, metadata)
    except SafetensorError as error:
        raise WorkError(f"{file}: the weights could not be written ({error}).") from None


def read_header(file: Path) -> dict[str, Stored]:
    """The names, shapes and types in a safetensors file; the tensors themselves are not read."""
    if not file.is_file():  # to open a pipe would wait for somebody to write to it
        raise ModelFolderError(f"{file}: expected a safetensors file, found {'none' if file.exists() else 'nothing'}.")
    try:
        with safe_open(file, framework="pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - it is no mapping
            return {name: Stored(tuple(each.get_shape()), str(each.get_dtype())) for name, each in slices.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFolderError(f"{file}: not a safetensors file ({error}).") from None


def read_stored(file: Path) -> dict[str, Stored]:
    """The same for weights: a matrix in int8 and its scales are one."""
    found = read_header(file)
    scaled = {name for name, stored in found.items() if stored.dtype == "I8" and name + SCALE in found}
    for name in scaled:
        scale, wanted = found.pop(name + SCALE), Stored(found[name].shape[:-1], "F32")
        if scale != wanted:
            raise ModelFolderError(
                f"{file}: the scale {name + SCALE!r} is not that of its matrix: expected {list(wanted.shape)} of "
                f"{wanted.dtype}, found {list(scale.shape)} of {scale.dtype}."
            )
        found[name] = Stored(found[name].shape, SCALED)
    return found


def read_weights(file: Path) -> dict[str, Tensor]:
    """All weights of a file on the host, matrices in int8 as float32."""
    found = read_tensors(file)
    for name in [name for name, tensor in found.items() if tensor.dtype == torch.int8 and name + SCALE in found]:
        found[name] = found[name].to(torch.float32).mul_(found.pop(name + SCALE)[..., None])
    return found


def quantized(name: str, weight: Tensor) -> dict[str, Tensor]:
    """[..., inputs] as whole numbers under its name, with a scale [...]: a row's largest number is 127 or -127.

    Of what is read again it makes the same: for scales s = a / 127 in float32, 127 * s / 127 is s (no tie can arise).
    So does a backend that quantizes rows by their largest number.
    """
    scale = weight.abs().amax(-1).clamp_min(torch.finfo(torch.float32).tiny * _LEVELS) / _LEVELS
    codes = (weight / scale[..., None]).round().clamp(-_LEVELS, _LEVELS)
    return {name: codes.to(torch.int8), name + SCALE: scale}


def read_tensors(file: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the host."""
    try:
        return dict(load_file(file))
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFolderError(f"{file}: not a safetensors file ({error}).") from None


def sketched(
    build: Callable[[], Module], found: Mapping[str, Stored], file: Path, lent: Mapping[str, Stored] | None = None
) -> Module:
    """The module on the meta device, if every weight of it is in `found` (of `file`) with its shape, and no other.

    Weights that are not in the file may be `lent` by another.
    """
    module = outline(build, len(found) + len(lent or {}), file)
    expected = module.state_dict()
    found = {**{name: stored for name, stored in (lent or {}).items() if name in expected}, **found}
    for name in expected:
        if name not in found:
            raise ModelFolderError(f"{file}: the weight {name!r} is missing.")
    for name, stored in found.items():
        if name not in expected:
            raise ModelFolderError(f"{file}: found a weight {name!r} that the part's options do not have.")
        _check(name, expected[name], stored, file)
    tables = sum(buffer.numel() * buffer.element_size() for name, buffer in module.named_buffers() if name not in found)
    if tables > _LARGEST_TABLES:
        raise ModelFolderError(
            f"{file}: expected options whose tables, of positions for one, take at most {_LARGEST_TABLES >> 30} GiB, "
            f"found {tables / (1 << 30):,.0f} GiB (longest may be too large)."
        )
    return module


def outline(build: Callable[[], Module], weights: int, file: Path) -> Module:
    """The module on the meta device, if it has not many more weights than `file` has tensors."""
    try:
        with _at_most(2 * weights + 64, file), torch.device("meta"), _ShapesAlone():
            return build()
    except (RuntimeError, OverflowError, TypeError, ValueError) as error:  # sizes that not even numbers can hold
        raise ModelFolderError(
            f"{file}: nothing can be built from the part's options ({_first_line(error)})."
        ) from None


class _ShapesAlone(TorchFunctionMode):
    """Weights are neither drawn nor scaled: for that PyTorch would import its compiler on the meta device, in seconds.

    Whatever is not known here still works.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if function in (Tensor.normal_, Tensor.uniform_) or getattr(function, "__module__", "") == nn.init.__name__:
            return args[0] if args else given["tensor"]
        if function is Tensor.mul and isinstance(args[1], float):
            return args[0]
        if function is torch.randn:
            return torch.empty(*args, **given)
        if function is torch.arange and all(isinstance(each, int) for each in args):
            return torch.empty(len(range(*args)), **{"dtype": torch.int64, **given})
        return function(*args, **given)


class _Uninitialised(TorchFunctionMode):
    """What would draw a weight's first numbers leaves it as it is."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if getattr(function, "__module__", "") == "torch.nn.init" or name in ("normal_", "uniform_"):
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return function(*args, **kwargs)


def uninitialised(build: Callable[[], Module]) -> Module:
    """A module whose weights are about to be read: drawing them first takes as long as reading them."""
    with _Uninitialised():
        return build()


def fill(module: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> None:
    """Copy tensors that agree with the module into it; one that is not finite there is refused."""
    module.load_state_dict(dict(tensors))
    if name := not_finite(module.state_dict().items()):
        raise ModelFolderError(f"{file}: expected finite numbers, found others in the weight {name!r}.")
    if check := getattr(module, "check_weights", None):
        try:
            check()
        except OptionError as error:
            raise ModelFolderError(f"{file}: {error}") from None


def not_finite(named: Iterable[tuple[str, Tensor]]) -> str | None:
    """The name of the first tensor that holds an infinity or what is no number, if there is one."""
    for name, tensor in named:
        # A sum is a third of the cost of asking each; it may overflow by itself, and then each is asked.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            return name
    return None


def _check(name: str, expected: Tensor, stored: Stored, file: Path) -> None:
    if stored.shape != tuple(expected.shape):
        shapes = f"expected {list(expected.shape)}, found {list(stored.shape)}"
        raise ModelFolderError(f"{file}: the weight {name!r} has the wrong shape: {shapes}.")
    floating = expected.is_floating_point()
    if floating and stored.dtype == "I8":
        raise ModelFolderError(f"{file}: the weight {name!r} is stored in int8, and its {name + SCALE!r} is missing.")
    if stored.dtype not in (*_FLOATS, SCALED) if floating else _DTYPES.get(stored.dtype) != expected.dtype:
        wanted = "one of " + ", ".join(_FLOATS) if floating else str(expected.dtype)
        raise ModelFolderError(
            f"{file}: the weight {name!r} has the wrong type: expected {wanted}, found {stored.dtype}."
        )


@contextmanager
def _at_most(most: int, file: Path) -> Iterator[None]:
    """Refuse a module that is being built and has more weights than so many, tied and passing ones counted."""
    count = 0

    def counted(module: nn.Module, name: str, value: Any) -> None:
        nonlocal count
        count += value is not None
        if count > most:
            raise ModelFolderError(f"{file}: the part's options ask for more weights than the file has.")

    hooks = [register_module_parameter_registration_hook(counted), register_module_buffer_registration_hook(counted)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
