"""The structures of native.h once more, field by field."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_void_p

import torch

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
