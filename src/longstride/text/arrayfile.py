"""Flat arrays of integers and a note about them in one safetensors file. Knows nothing of what they mean.

Written by hand rather than through the safetensors package, because arrays may be larger than memory: they are streamed
out of temporary files when written and mapped when read.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from longstride.text.files import LARGEST, parse_json

_DTYPES: dict[str, type[np.generic]] = {"I64": np.int64, "U32": np.uint32, "U16": np.uint16}


def write_arrays(
    path: Path,
    note: Mapping[str, str],
    arrays: Mapping[str, tuple[type[np.generic], int, npt.NDArray[Any] | IO[bytes]]],
) -> None:
    """Write arrays, each given as its type, its size and its values or an open file of their bytes."""
    # Wide numbers come first, which keeps every array aligned.
    ordered = sorted(arrays.items(), key=lambda entry: -np.dtype(entry[1][0]).itemsize)
    names = {dtype: name for name, dtype in _DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": dict(note)}
    end = 0
    for name, (dtype, size, _) in ordered:
        start, end = end, end + size * np.dtype(dtype).itemsize
        header[name] = {"dtype": names[dtype], "shape": [size], "data_offsets": [start, end]}
    encoded = json.dumps(header).encode("utf-8")
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for _, (dtype, _, values) in ordered:
            if isinstance(values, np.ndarray):
                file.write(values.astype(dtype, copy=False).tobytes())
            else:
                values.seek(0)
                shutil.copyfileobj(values, file, 1 << 20)


def read_arrays(path: Path, mapped: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """The note and the arrays, mapped or read whole; a file that is cut or something else raises ValueError."""
    found = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        size = int.from_bytes(start, "little")
        if len(start) < 8 or size > found - 8:
            raise ValueError(f"its header is cut short or none, in {found} bytes")
        if size > LARGEST:
            raise ValueError(f"its header has {size:,} bytes")
        header = parse_json(file.read(size))
    try:
        note: dict[str, str] = header.pop("__metadata__")
        places: dict[str, tuple[type[np.generic], int, int]] = {}
        for name, entry in header.items():
            start, end = entry["data_offsets"]
            places[name] = (_DTYPES[entry["dtype"]], int(start), int(end))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its header lacks {error}") from error
    if any(not 0 <= start <= end for _, start, end in places.values()):
        raise ValueError("its header has arrays that end before they begin")
    expected = 8 + size + max((end for _, _, end in places.values()), default=0)
    if found != expected:
        raise ValueError(f"it should have {expected} bytes and has {found}")
    raw = np.asarray(np.memmap(path, np.uint8, "r") if mapped else np.fromfile(path, np.uint8))[8 + size :]
    return note, {name: raw[start:end].view(dtype) for name, (dtype, start, end) in places.items()}
