"""Weights out of a Hugging Face folder and back: safetensors whole or in shards, and PyTorch files of plain tensors.

A missing, superfluous or misshapen tensor is named. Whether embeddings are tied is what the files say: a duplicate that
is equal is no table of its own.
"""

from __future__ import annotations

import fnmatch
import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from longstride.contract import ModelFolderError, OptionError
from longstride.interop.hf.families import LOGITS_BIAS, Family
from longstride.nn.options import TransformerOptions
from longstride.nn.positions import sinusoid
from longstride.nn.transformer import Transformer
from longstride.nn.weights import outline, read_tensors
from longstride.text.files import read_json

SAFETENSORS, PYTORCH = "model.safetensors", "pytorch_model.bin"

State = dict[str, Tensor]


@dataclass(frozen=True)
class Taken:
    """A model read out of another library's files."""

    options: TransformerOptions
    state: State
    """under our names"""
    names: dict[str, str]
    """tensors of the files, by their names, with their types"""
    unread: tuple[str, ...] = field(default=())
    """those among them that transformers does not read either"""
    unknown: tuple[str, ...] = field(default=())
    """those among the unread ones that folders of the family do not usually have"""


def read_weights(folder: Path) -> State:
    """All tensors of a folder, mapped into memory and read when they are used."""
    for name, read in ((SAFETENSORS, read_tensors), (PYTORCH, _read_pytorch)):
        if (folder / name).is_file():
            return read(folder / name)
        if (index := folder / f"{name}.index.json").is_file():
            found: State = {}
            named = _weight_map(index)
            for shard in sorted(set(named.values())):
                here = read(folder / shard)
                for tensor in here:
                    if named.get(tensor) != shard:
                        raise ModelFolderError(f"{index}: expected {tensor!r} of {shard} to be listed, found it not.")
                found |= here
            for tensor, shard in named.items():
                if tensor not in found:
                    raise ModelFolderError(f"{folder / shard}: expected the tensor {tensor!r}, found it missing.")
            return found
    others = sorted(path.name for path in folder.glob("*") if path.suffix in (".h5", ".msgpack", ".ot", ".bin", ".pt"))
    found_instead = f"found {', '.join(others)}" if others else "found none"
    raise ModelFolderError(f"{folder}: expected {SAFETENSORS} or {PYTORCH}, whole or in shards, {found_instead}.")


def _weight_map(index: Path) -> dict[str, str]:
    try:
        named = read_json(index)["weight_map"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFolderError(f"{index}: expected a weight_map, could not read one ({error!r}).") from None
    if not isinstance(named, dict) or not all(isinstance(each, str) for each in named.values()):
        raise ModelFolderError(f"{index}: expected weight_map to name a file for each tensor, found {named!r}.")
    if away := [name for name in named.values() if Path(name).name != name or name in (".", "..")]:
        raise ModelFolderError(f"{index}: expected plain file names, found {away[0]!r}.")
    return named


def _read_pytorch(file: Path) -> State:
    try:
        with file.open("rb") as opened:
            zipped = opened.read(2) == b"PK"  # files from before 2020 are none, and cannot be mapped into memory
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of kinds of pickles that may turn out not to be readable: that is said
            found = torch.load(file, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError:
        raise ModelFolderError(
            f"{file}: expected plain tensors, found a pickle that would run code of its own, which is never done here; "
            "save the model as safetensors."
        ) from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, TypeError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ModelFolderError(f"{file}: expected whole PyTorch weights, could not read them ({said}).") from None
    if not isinstance(found, dict) or not all(isinstance(each, Tensor) for each in found.values()):
        raise ModelFolderError(f"{file}: expected a tensor for each name, found something else.")
    return dict(found)


def take_weights(
    family: Family, shape: Mapping[str, Any], given: Mapping[str, Tensor], place: str, tied: bool = True
) -> Taken:
    """A family's tensors under our names, with options (`shape`, completed by what the tensors tell)."""
    found = _prefixed(family, given)
    options = _options(shape, place)
    options, tables, used = _tables(family, options, found, place, tied)
    options, more, also = _bias(family, options, found, place)
    options, sinusoids = _positions(family, options, found)
    state = {**tables, **more}
    used |= also | sinusoids
    expected = outline(lambda: Transformer(options), len(given), Path(place)).state_dict()
    for ours, theirs in family.weights(options).items():
        wanted = expected[ours]
        parts = []
        for name in theirs:
            rows = (wanted.shape[0] // len(theirs), *wanted.shape[1:])
            parts.append(_checked(found, name, rows, place))
            used.add(name)
        state[ours] = torch.cat(parts) if len(parts) > 1 else parts[0]
    if missing := [name for name in expected if name not in state]:
        raise ModelFolderError(f"{place}: nothing is known to fill {missing[0]!r} with.")
    unread = [name for name in found if name not in used]
    usual = (family.tables[3], *family.ignored)
    unknown = [name for name in unread if not any(fnmatch.fnmatchcase(name, pattern) for pattern in usual)]
    dtypes = {name: _dtype_name(tensor) for name, tensor in given.items()}
    as_given, ignored = (
        tuple(name if name in given else name.removeprefix(family.prefix) for name in names)
        for names in (unread, unknown)
    )
    return Taken(options, state, dtypes, as_given, ignored)


def out_of_reach(taken: Taken, ids: Sequence[int]) -> tuple[Taken, dict[str, float]]:
    """Ids whose probability is to go to the rest (`renormalize_logits`), by a bias; and what biases they had."""
    if not ids:
        return taken, {}
    bias = taken.state.get("logits_bias", next(iter(taken.state.values())).new_zeros(taken.options.vocabulary)).clone()
    had = {str(token): float(bias[token]) for token in ids}
    bias[list(ids)] = max(-1e9, torch.finfo(bias.dtype).min / 2)
    options = replace(taken.options, logits_bias=True)
    return replace(taken, options=options, state={**taken.state, "logits_bias": bias}), had


def widened(taken: Taken, vocabulary: int) -> Taken:
    """The same with rows for ids that the model does not have, to be put out of reach."""
    more = vocabulary - taken.options.vocabulary
    tables = {name: table for name, table in taken.state.items() if name.endswith("_embedding.weight")}
    wide = {name: torch.cat([table, table.new_zeros(more, table.shape[1])]) for name, table in tables.items()}
    if (bias := taken.state.get("logits_bias")) is not None:
        wide["logits_bias"] = torch.cat([bias, bias.new_zeros(more)])
    return replace(taken, options=replace(taken.options, vocabulary=vocabulary), state={**taken.state, **wide})


def give_weights(
    family: Family,
    options: TransformerOptions,
    state: Mapping[str, Tensor],
    names: Mapping[str, str],
    biases: Mapping[str, float] | None = None,
    rows: int | None = None,
) -> State:
    """The way back: our state as the tensors of these names and types.

    `biases` are what :func:`out_of_reach` told, `rows` those that a model had before it was :func:`widened`.
    """
    named = set(names)
    bare = bool(family.prefix) and not any(name.startswith(family.prefix) for name in named)
    found: State = {}
    for ours, theirs in family.weights(options).items():
        for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True):
            found[name] = part
    target = state["target_embedding.weight"]
    source, output = (target if options.tie in kinds else state[f"{side}_embedding.weight"]
                      for side, kinds in (("source", ("all",)), ("output", ("all", "target"))))  # fmt: skip
    tables = [table[: rows or len(table)] for table in (source, target, output)]
    own = [name.removeprefix(family.prefix) if bare else name for name in family.tables]
    # What all may share stands for those that have no table of their own.
    shared = next((table for name, table in zip(own[:3], tables, strict=True) if name not in named), tables[1])
    found |= dict(zip(family.tables, (*tables, shared), strict=True))
    bias = state["logits_bias"].clone() if options.logits_bias else torch.zeros(options.vocabulary)
    for token, value in (biases or {}).items():
        bias[int(token)] = value
    found[LOGITS_BIAS] = bias[None, : rows or len(bias)]
    for name in family.sinusoids or ():
        found.setdefault(name, _sinusoids(options))
    if bare:
        found = {name.removeprefix(family.prefix): tensor for name, tensor in found.items()}
    given: State = {}
    for name, dtype in names.items():
        tensor = found[name].to(getattr(torch, dtype)).contiguous()
        # PyTorch's files have what is tied under every name; safetensors refuses two names for one place in memory.
        tied = any(tensor.data_ptr() == other.data_ptr() for other in given.values())
        given[name] = tensor.clone() if tied else tensor
    return given


def _prefixed(family: Family, given: Mapping[str, Tensor]) -> State:
    """Files of a class without an output projection leave a prefix out."""
    prefix = family.prefix
    if not prefix or any(name.startswith(prefix) for name in given):
        return dict(given)
    whole = (LOGITS_BIAS, family.tables[2])
    return {name if name in whole else prefix + name: tensor for name, tensor in given.items()}


def _tables(
    family: Family, options: TransformerOptions, found: State, place: str, tied: bool
) -> tuple[TransformerOptions, State, set[str]]:
    """The three tables of embeddings, and which of them are one."""
    source_name, target_name, output_name, shared_name = family.tables
    separate = options.source_vocabulary is not None
    if not tied:
        _checked(found, output_name, (options.vocabulary, options.width), place)
    chains = (
        [source_name] if separate else [source_name, shared_name, target_name, output_name],
        [target_name, output_name] if separate else [target_name, shared_name, source_name, output_name],
        [output_name, target_name] if separate else [output_name, shared_name, target_name, source_name],
    )
    rows = (options.source_vocabulary or options.vocabulary, options.vocabulary, options.vocabulary)
    usual = (source_name, target_name, target_name) if separate else (shared_name,) * 3
    tables, used = [], set()
    for chain, count, missing in zip(chains, rows, usual, strict=True):
        name = next((name for name in chain if name in found), missing)
        tables.append(_checked(found, name, (count, options.width), place))
        used.add(name)
    source, target, output = tables
    one_output = torch.equal(target, output)
    one_source = not separate and torch.equal(source, target)
    tie: Literal["all", "target", "none"] = "all" if one_output and one_source else "target" if one_output else "none"
    if shared_name in found and any(torch.equal(found[shared_name], table) for table in tables):
        used.add(shared_name)
    state = {"target_embedding.weight": target}
    if tie != "all":
        state["source_embedding.weight"] = source
    if tie == "none":
        state["output_embedding.weight"] = output
    return replace(options, tie=tie), state, used


def _bias(
    family: Family, options: TransformerOptions, found: State, place: str
) -> tuple[TransformerOptions, State, set[str]]:
    """A bias of the logits, where it is there and does anything."""
    if not family.logits_bias or LOGITS_BIAS not in found:
        return options, {}, set()
    bias = _checked(found, LOGITS_BIAS, (1, options.vocabulary), place)
    if not bias.any():
        return options, {}, {LOGITS_BIAS}
    return replace(options, logits_bias=True), {"logits_bias": bias[0]}, {LOGITS_BIAS}


def _positions(family: Family, options: TransformerOptions, found: State) -> tuple[TransformerOptions, set[str]]:
    """Tables of sinusoids that files have: what is not, to the bit, what we would compute is taken as learned."""
    there = [name for name in family.sinusoids or () if name in found]
    if not there:
        return options, set()
    computed = _sinusoids(options)
    if all(torch.equal(found[name].float(), computed) for name in there):
        return options, set(there)
    return replace(options, positions="learned"), set()


def _sinusoids(options: TransformerOptions) -> Tensor:
    return sinusoid(torch.arange(options.longest), options.width, options.sinusoid).float()


def _checked(found: State, name: str, shape: tuple[int, ...], place: str) -> Tensor:
    if name not in found:
        raise ModelFolderError(f"{place}: expected the tensor {name!r}, found it missing.")
    tensor = found[name]
    if tuple(tensor.shape) != shape:
        raise ModelFolderError(
            f"{place}: the tensor {name!r} expects the shape {list(shape)}, found {list(tensor.shape)}."
        )
    if not tensor.is_floating_point():
        raise ModelFolderError(f"{place}: the tensor {name!r} expects floating-point numbers, found {tensor.dtype}.")
    return tensor


def _options(shape: Mapping[str, Any], place: str) -> TransformerOptions:
    try:
        # What is tied is found out from the weights.
        return TransformerOptions(**{"tie": "none", **shape})
    except OptionError as error:
        raise ModelFolderError(f"{place}: {error}") from None


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
