"""The library of C functions that graphs are run by: of those that were built, the best that this processor can run."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch

from longstride.runtime.native.building import LIBRARIES, SOURCE, fingerprint, library_name, noted, variants
from longstride.runtime.processor import Processor, this_processor

FORCED = "LONGSTRIDE_NATIVE"
"""The environment variable by which tests name a variant."""


class NoLibraryError(Exception):
    """There is no library that can be used here; says why, and what to do, in whole sentences."""


class NotBuiltError(NoLibraryError):
    """The libraries were not built, or from other sources than are here now."""


@cache
def library() -> ctypes.CDLL:
    """The library, its functions told what they take. A call lets other Python threads run meanwhile."""
    return declared(load(chosen(LIBRARIES, this_processor(), os.environ.get(FORCED, ""))))


def chosen(folder: Path, processor: Processor, forced: str = "", source: Path = SOURCE) -> Path:
    """The best library in a folder of those that a processor can run, or the one of a given name."""
    note = noted(folder)
    built, failed = note.get("built"), note.get("failed")
    if not isinstance(built, list) or not isinstance(failed, dict):
        raise NotBuiltError(
            "The runtime native is not built: run `make native` in a checkout, or install longstride again."
        )
    if note.get("fingerprint") != fingerprint(source):
        raise NotBuiltError("The runtime native was built from other sources than are here now: run `make native`.")
    runnable = [one.name for one in variants(processor.machine) if one.needs <= processor.flags]
    for name in (forced,) if forced else runnable:
        if name in built:
            return folder / library_name(name)
    if not built and failed:
        raise NotBuiltError(
            f"The runtime native was not built when longstride was installed: {next(iter(failed.values()))}; install a "
            "C compiler (Debian: apt install gcc) and install longstride again."
        )
    raise NoLibraryError(
        f"The runtime native was built for {', '.join(built)}; this processor can run "
        f"{', '.join(runnable) or 'none of its variants'}{f', and {forced} was asked for' if forced else ''}."
    )


def missed(folder: Path, processor: Processor) -> str | None:
    """That a better library than the one in use was to be built and was not, and why, in a sentence."""
    failed = noted(folder).get("failed")
    used = chosen(folder, processor)
    for one in variants(processor.machine):
        if library_name(one.name) == used.name:
            return None
        if one.needs <= processor.flags and isinstance(failed, dict) and one.name in failed:
            return (
                f"The runtime native uses {used.name}, as its library for {one.name} was not built "
                f"({failed[one.name]}): run `make native` in a checkout, or install longstride again."
            )
    return None


def load(path: Path) -> ctypes.CDLL:
    """The library at this path."""
    try:
        return ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise NoLibraryError(f"The library of the runtime native cannot be loaded ({error}).") from None


def declared(found: ctypes.CDLL) -> ctypes.CDLL:
    """The library, its functions told what they take."""
    found.run.argtypes, found.run.restype = [c_void_p], c_int64
    found.empty.argtypes, found.empty.restype = [POINTER(CMachine)], None
    found.sizes_of.argtypes, found.sizes_of.restype = [POINTER(c_int64)], None
    found.operator_names.argtypes, found.operator_names.restype = [], c_char_p
    found.make_pool.argtypes, found.make_pool.restype = [c_int], c_void_p
    found.end_pool.argtypes, found.end_pool.restype = [c_void_p], None
    found.pack_linear.argtypes = [POINTER(c_float), POINTER(c_float), c_int64, c_int64, c_int64]
    found.pack_linear.restype = c_void_p
    found.free_linear.argtypes, found.free_linear.restype = [c_void_p], None
    found.has_integer_products.argtypes, found.has_integer_products.restype = [], c_int
    found.weight_levels.argtypes, found.weight_levels.restype = [], c_int
    return found


@cache
def operator_codes() -> dict[str, int]:
    """The number of every operator, as C counts them."""
    return {name: number for number, name in enumerate(library().operator_names().decode().split())}


MOST_DIMENSIONS, MOST_INPUTS, MOST_OUTPUTS, MOST_ATTRIBUTES = 6, 12, 12, 12

F32, I64, BOOL, F64 = 1, 7, 9, 11
KIND = {torch.float64: F64, torch.float32: F32, torch.int64: I64, torch.bool: BOOL}
"""As ONNX numbers its types."""


class CValue(Structure):
    """One tensor."""

    _fields_ = (
        ("data", c_void_p),
        ("kind", c_int32),
        ("rank", c_int32),
        ("sizes", c_int64 * MOST_DIMENSIONS),
        ("buffer", c_int32),
        ("fixed", c_int32),
        ("held", c_int64),
    )


class CInstruction(Structure):
    """One operator."""

    _fields_ = (
        ("code", c_int32),
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("input", c_int32 * MOST_INPUTS),
        ("output", c_int32 * MOST_OUTPUTS),
        ("spare", c_int32),
        ("attribute", c_int64 * MOST_ATTRIBUTES),
        ("weights", c_void_p),
    )


class CBuffer(Structure):
    """Memory that values share."""

    _fields_ = (("data", c_void_p), ("size", c_int64))


class CMachine(Structure):
    """All that a run needs."""

    _fields_ = (
        ("values", POINTER(CValue)),
        ("value_count", c_int64),
        ("instructions", POINTER(CInstruction)),
        ("instruction_count", c_int64),
        ("buffers", POINTER(CBuffer)),
        ("buffer_count", c_int64),
        ("pool", c_void_p),
        ("scratch", c_void_p),
        ("scratch_size", c_int64),
        ("error", c_char_p),
        ("clock", POINTER(c_int64)),
        ("portion", c_int64),
        ("next", c_int64),
    )
