"""Runners by name: which runtime, where and in which precision, `auto` the fastest; what cannot be had is said, and
runs eagerly. How many sentences each had better be given at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import cast

import torch

from longstride.contract import OptionError, Precision, Runner
from longstride.runtime.eager import EagerRunner
from longstride.runtime.names import AUTO, check_precision, check_runtime

PROCESSORS = ("native", "onnx")
"""Those that build graphs for processors, in fp32 or int8."""


def make_runner(
    device: str = AUTO,
    precision: str = "fp32",
    runtime: str = "eager",
    threads: int | None = None,
    tell: Callable[[str], None] | None = None,
    stored: str = "fp32",
) -> Runner:
    """A runner by name; `auto` takes a CUDA device where there is one and the runtime can use it, the fastest runtime
    there, and the precision that suits both and what the weights are `stored` in."""
    check_runtime(runtime)
    check_precision(precision)
    chosen = runtime == AUTO
    if chosen:
        runtime = fastest_runtime(device, precision)
    if precision == AUTO:
        precision = fastest_precision(device, runtime, stored)
    numbers = cast(Precision, precision)
    if runtime in PROCESSORS:
        if device != "auto" and check_device(device).type != "cpu":
            raise OptionError(f"The runtime {runtime} expects the device cpu, found {device!r}.")
        if precision not in ("fp32", "int8"):
            raise OptionError(f"precision expects fp32 or int8 with the runtime {runtime}, found {precision!r}.")
        if runtime == "native":
            return _native_runner(numbers, threads, tell, chosen)
        return _onnx_runner(numbers, threads, tell)
    if precision == "int8":
        raise OptionError(f"precision int8 expects the runtime native or onnx, found {runtime}.")
    if runtime != "eager":
        return _cuda_runner(device, numbers, runtime, tell or _warn)
    return EagerRunner(check_device(device), numbers)


def fastest_runtime(device: str, precision: str) -> str:
    """What `auto` means for a device and a precision."""
    if precision != "int8" and check_device(device).type == "cuda":
        return "eager" if precision == "fp64" else "cuda-graph"
    return "eager" if precision in ("fp64", "fp16", "bf16") else "native"


def fastest_precision(device: str, runtime: str, stored: str) -> str:
    """What `auto` means for a runtime: int8 only where the weights are such integers already."""
    if runtime == "cuda-graph" and check_device(device).type == "cuda":
        return "fp16"
    return "int8" if runtime == "native" and stored == "int8" and _integers() else "fp32"


def _integers() -> bool:
    """Whether the runtime native can compute in int8 here."""
    from longstride.runtime.native.library import NoLibraryError
    from longstride.runtime.native.runner import check_supported

    try:
        check_supported("int8")
    except NoLibraryError:
        return False
    return True


def fastest_batch(runtime: str) -> int:
    """Sentences decoded side by side where nobody says how many, by the runtime that carries it out.

    A processor's cores are busy with 16 rows, and more of them wait longer for the longest: milliseconds of one core a
    line, debates by the base model's greedy search in int8, were 119, 71, 46, 34, 26, 30, 33 for 1, 2, 4, ... 64 rows;
    one at a time with drafts took 69. A GPU has room: on an H200 in fp16 they were 5.3,
    0.79, 0.26, 0.18, 0.17 for 1, 8, 32, 64 and 128 rows, with drafts 1.9, 0.39, 0.17, 0.13, 0.11.
    """
    return {"native": 16, "onnx": 16, "cuda-graph": 128}.get(runtime, 32)


def some_seconds(device: str) -> float:
    """Characters of source times parameters that a device works on for some seconds.

    Two cores with VNNI took 2.6 s of one core for 18,103 characters of captions by the bundled model (30 M parameters)
    in int8, and 8.0 s for 72,682 of debates. A GPU is taken to be forty times as fast.
    """
    return 4e13 if device == "cuda" else 1e12


def _native_runner(
    precision: Precision, threads: int | None, tell: Callable[[str], None] | None, chosen: bool
) -> Runner:
    """Where nobody named it (`chosen`), nobody is told of programs that run eagerly, only that it is not there."""
    from longstride.runtime.native.library import NoLibraryError
    from longstride.runtime.native.runner import NativeRunner

    try:
        return NativeRunner(precision, threads, _nobody if chosen else tell)
    except NoLibraryError as error:
        tell = tell or _warn
        try:
            from longstride.runtime.onnx_runner import OnnxRunner
        except ImportError:
            tell(f"{error} The model runs eagerly in fp32.")
            return EagerRunner("cpu", "fp32")
        tell(f"{error} The model runs in {precision} by the runtime onnx.")
        return OnnxRunner(precision, threads, _nobody if chosen else tell)


def _onnx_runner(precision: Precision, threads: int | None, tell: Callable[[str], None] | None) -> Runner:
    tell = tell or _warn
    try:
        from longstride.runtime.onnx_runner import OnnxRunner
    except ImportError as error:
        tell(
            "The runtime onnx expects the packages onnxruntime and onnx (pip install 'longstride[onnx]'), found no "
            f"{error.name}: the model runs eagerly in fp32."
        )
        return EagerRunner("cpu", "fp32")
    return OnnxRunner(precision, threads, tell)


def _cuda_runner(device: str, precision: Precision, runtime: str, tell: Callable[[str], None]) -> Runner:
    where = check_device(device)
    if where.type != "cuda":
        tell(f"The runtime {runtime} expects a CUDA device, found {where}: the model runs eagerly in {precision}.")
        return EagerRunner(where, precision)
    from longstride.runtime.cuda_graph import CudaGraphRunner

    return CudaGraphRunner(where, precision, tell=tell)


def check_device(name: str) -> torch.device:
    """A device that is there; `auto` is a CUDA device where there is one, else the processor."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index):
        raise OptionError(f"device expects auto, cpu or cuda (cuda:1, ...), found {name!r}.")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= there:
        raise OptionError(f"device {name} was asked for, but PyTorch finds {there or 'no'} CUDA devices here.")
    # Named with its number: "cuda" alone means whichever is current, and compares unequal to a tensor's device.
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def _nobody(message: str) -> None:
    """Hears it."""


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
