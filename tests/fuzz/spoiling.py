"""Valid things with something wrong in them: bytes, JSON, model folders."""

from __future__ import annotations

import hashlib
import json
import math
import os
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from longstride.model_folder import CONFIG

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 2**20, 10**6, 10**9, 2**31, 2**63, 10**30, 0.5, -0.5, 1e300, 1e-320),
    *(math.nan, math.inf, -math.inf, "", " ", "x", "../x", "a/b", "x" * 300, "\udcff", "\u0000", "model", "nan", "1"),
    *([], {}, [1], ["x"], [[]], {"x": 1}, {"": None}),
)

Place = tuple[Any, Any]
"""A list or dict, and the index or key of something in it."""


def flipped(rng: Random, content: bytes) -> bytes:
    """A few bytes changed, taken out, or put in."""
    found = bytearray(content or b"\0")
    for _ in range(rng.choice((1, 1, 2, 8))):
        # Headers come first in most formats, and are where the interesting bytes are.
        place = rng.randrange(min(len(found), rng.choice((8, 64, 1024, 1 << 30))))
        found[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, found[place] ^ (1 << rng.randrange(8)), rng.randrange(256)))
    cut = rng.randrange(len(found))
    return bytes(rng.choice((found, found, found, found[:cut], found[cut:], found + found[:cut], b"")))


def spoil_json(rng: Random, value: Any) -> Any:
    """One to three places of a JSON value changed, in place; the value itself is given back, or something else."""
    if rng.random() < 0.03:
        return rng.choice(VALUES)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return value
        inside, key = rng.choice(places)
        how = rng.random()
        if how < 0.15:
            del inside[key]
        elif how < 0.25 and isinstance(inside, dict):
            inside[rng.choice(("x", "", key + "x", "format", "é" * 100))] = rng.choice(VALUES)
        elif how < 0.35:
            other, there = rng.choice(places)
            inside[key] = json.loads(json.dumps(other[there])) if there in _keys(other) else None
        elif how < 0.5 and isinstance(inside[key], int | float):
            factor = rng.choice((-1, 0.5, 2, 1000, 1e6))
            inside[key] = type(inside[key])(inside[key] * factor) if math.isfinite(inside[key]) else 0
        else:
            inside[key] = rng.choice(VALUES)
    return value


def _keys(inside: Any) -> Any:
    return inside if isinstance(inside, dict) else range(len(inside))


def _places(value: Any) -> list[Place]:
    found: list[Place] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            keys = list(one) if isinstance(one, dict) else list(range(len(one)))
            found += [(one, key) for key in keys]
            waiting += [one[key] for key in keys]
    return found


def json_text(rng: Random, value: Any, spoilt: bool = True) -> bytes:
    """JSON as bytes; if it is to be spoilt, its values or its text."""
    if spoilt and rng.random() < 0.75:
        return json.dumps(spoil_json(rng, value)).encode("utf-8", "surrogatepass")
    text = json.dumps(value).encode()
    if not spoilt:
        return text
    deep = rng.choice((100, 2000, 100_000))
    return rng.choice(
        (
            flipped(rng, text),
            text[: rng.randrange(len(text))],
            b"\xef\xbb\xbf" + text,
            text + text,
            b"[" * deep + b"]" * deep,
            b'{"a":' * deep + b"1" + b"}" * deep,
            text.replace(b":", b": 1e999999, " + b'"a":', 1),
            text.replace(b"1", b"9" * 5000, 1),
            text.decode().encode("utf-16"),
        )
    )


def spoil_model(rng: Random, folder: Path) -> None:
    """Do something to a model folder; hashes are put right again, or are not."""
    if not (folder / CONFIG).is_file():
        folder = folder / "model"
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    files = sorted(path for path in folder.iterdir() if path.name != CONFIG)
    for _ in range(rng.choice((1, 1, 1, 2))):
        with suppress(Exception):  # what it would do cannot be done to what is spoilt already
            _spoil_model(rng, folder, config, files)


def _spoil_model(rng: Random, folder: Path, config: Any, files: list[Path]) -> None:
    how = rng.random()
    if how < 0.45:
        _spoil_config(rng, folder / CONFIG, config)
    elif how < 0.6:
        _spoil_weights(rng, rng.choice([path for path in files if path.suffix == ".safetensors"]))
    elif how < 0.8:
        _spoil_file(rng, rng.choice(files), rng.choice(files))
    else:
        _spoil_place(rng, rng.choice([folder / CONFIG, *files]))
    if rng.random() < 0.8:
        _put_hashes_right(folder)


def _spoil_config(rng: Random, file: Path, config: Any) -> None:
    if not file.is_file():  # a pipe by now
        return
    if rng.random() < 0.5:  # where it matters most: shapes, kinds and roles
        inside = rng.choice(
            (config["parts"], config["decoders"], *(one["options"] for one in config["parts"].values()))
        )
        spoil_json(rng, inside)
        file.write_bytes(json.dumps(config).encode("utf-8", "surrogatepass"))
    else:
        file.write_bytes(json_text(rng, config))


def _spoil_weights(rng: Random, file: Path) -> None:
    """Weights that are no numbers, of another shape or type, missing, or more than there should be."""
    if not file.is_file() or not (weights := load_file(file)):
        return
    name = rng.choice(sorted(weights))
    one = weights[name]
    how = rng.randrange(6)
    if how == 0 and one.is_floating_point():
        weights[name] = torch.full_like(one, rng.choice((math.nan, math.inf, -math.inf, 0.0, 6e4)))
    elif how == 1 and one.is_floating_point():
        one.view(-1)[rng.randrange(one.numel())] = rng.choice((math.nan, math.inf, 6e4))
    elif how == 2:
        weights[name] = one.to(rng.choice((torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64)))
    elif how == 3:
        weights[name] = torch.zeros(rng.choice(((), (0,), (1,), (16, 16), (3, 3, 3))))
    elif how == 4:
        del weights[name]
    elif one.is_floating_point():
        weights["extra"] = one.clone()
    else:  # tables of whole numbers: ids and places that are none
        weights[name] = one + rng.choice((-1, 1, 10**6))
    save_file(weights, file)


def _spoil_file(rng: Random, file: Path, other: Path) -> None:
    if not (file.is_file() and other.is_file()):
        return
    content = file.read_bytes()
    file.write_bytes(
        rng.choice(
            (
                flipped(rng, content),
                flipped(rng, content),
                b"",
                other.read_bytes(),
                (2**62).to_bytes(8, "little") + content[8:],  # safetensors: the length of its header
                content.replace(b'"shape":[', b'"shape":[4294967296,', 1),
                content.replace(b"F32", b"F64", 1),
                content.replace(b"\n", b"\r\n"),
                content + content[-20:],
            )
        )
    )


def _spoil_place(rng: Random, file: Path) -> None:
    """Not the bytes of a file, but what stands in its place."""
    if not file.is_file() or file.is_symlink():
        return
    how = rng.randrange(6)
    if how == 0:
        file.unlink()
    elif how == 1:
        file.chmod(0)
    elif how == 2:
        file.unlink()
        file.mkdir()
    elif how == 3:
        file.unlink()
        file.symlink_to(file.name)
    elif how == 4:
        moved = file.rename(file.with_name("moved"))
        file.symlink_to(moved.name)
    else:
        file.unlink()
        os.mkfifo(file)


def _put_hashes_right(folder: Path) -> None:
    """What config.json says of the files' hashes, as far as it can still be read."""
    try:
        config = json.loads(_content(folder / CONFIG))
        for part in config["parts"].values():
            part["sha256"] = hashlib.sha256(_content(folder / part["weights"])).hexdigest()
        config["tokenizer_sha256"] = hashlib.sha256(_content(folder / config["tokenizer"])).hexdigest()
        (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    except Exception:
        return


def _content(file: Path) -> bytes:
    """Of a plain file; a pipe would keep one waiting."""
    return file.read_bytes() if file.is_file() else b""
