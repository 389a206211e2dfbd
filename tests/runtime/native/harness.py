"""One operator by itself: a machine with one instruction, run on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from longstride.contract import Precision
from longstride.runtime.native.building import find_compiler
from longstride.runtime.native.library import (
    BOOL,
    F32,
    I64,
    CBuffer,
    CInstruction,
    CMachine,
    CValue,
    NoLibraryError,
    NotBuiltError,
    library,
    operator_codes,
)
from longstride.runtime.native.runner import check_supported

Array = np.ndarray[Any, Any]

KIND = {"float32": F32, "int64": I64, "bool": BOOL}
DTYPE = {number: np.dtype(name) for name, number in KIND.items()}


class OperatorError(Exception):
    """What an operator said of its inputs."""


@cache
def missing(precision: Precision = "fp32") -> str:
    """Why the runtime cannot be had here; where it could be built that is an error: nobody would miss skipped tests."""
    try:
        check_supported(precision)
    except NoLibraryError as error:
        if isinstance(error, NotBuiltError) and find_compiler() is not None:
            raise
        return str(error)
    return ""


def needs_library() -> Any:
    """For `pytestmark`: skips where there is no library, and says why."""
    return pytest.mark.skipif(bool(missing()), reason=missing() or "there is a library")


@cache
def pool(threads: int) -> int | None:
    """Kept for as long as the tests run."""
    found: int | None = library().make_pool(threads) if threads > 1 else None
    return found


def carry_out(
    name: str,
    *inputs: Array | None,
    attributes: Sequence[int] = (),
    outputs: int = 1,
    threads: int = 1,
    weights: int | None = None,
) -> list[Array]:
    """The operator's outputs, in memory of their own; an input that is None is left out; weights are an address"""
    values = (CValue * (len(inputs) + outputs))()
    buffers = (CBuffer * outputs)()
    instruction = CInstruction(code=operator_codes()[name], inputs=len(inputs), outputs=outputs, weights=weights)
    held = []
    for number, given in enumerate(inputs):
        instruction.input[number] = -1 if given is None else number
        if given is not None:
            held.append(array := np.ascontiguousarray(given).reshape(given.shape))
            _describe(values[number], array)
    for number in range(outputs):
        place = len(inputs) + number
        instruction.output[number] = place
        values[place].buffer = number
    for number, attribute in enumerate(attributes):
        instruction.attribute[number] = attribute
    machine = CMachine(
        values=values,
        value_count=len(values),
        instructions=ctypes.pointer(instruction),
        instruction_count=1,
        buffers=buffers,
        buffer_count=outputs,
        pool=pool(threads),
    )
    try:
        if library().run(ctypes.addressof(machine)):
            raise OperatorError(machine.error.decode())
        return [_copied(values[len(inputs) + number]) for number in range(outputs)]
    finally:
        library().empty(ctypes.byref(machine))


def _describe(value: CValue, array: Array) -> None:
    value.data = array.ctypes.data
    value.kind = KIND[array.dtype.name]
    value.rank = array.ndim
    value.sizes[: array.ndim] = array.shape
    value.buffer, value.fixed = -1, 1


def _copied(value: CValue) -> Array:
    shape = tuple(value.sizes[: value.rank])
    dtype = DTYPE[value.kind]
    found = np.empty(shape, dtype)
    if found.size:
        ctypes.memmove(found.ctypes.data, value.data, found.nbytes)
    return found


def same(found: Array, expected: Array) -> None:
    """Kind, shape and every element are equal."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def rows_of(shape: Sequence[int], seed: int = 0) -> Array:
    """Normal numbers in fp32"""
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(np.float32)
