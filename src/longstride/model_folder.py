"""Model folders: plain data, never code. One `config.json`, weights in safetensors, a tokenizer.

    config.json       format version; tokenizers; special ids; limits; parts (kind, options, weights file, sha256);
                      decoders (which part has which role, default options); provenance
    *.safetensors     weights: floats, or matrices in int8 with a scale for each row (NAME.scale)
    tokenizer.model   SentencePiece, a word list, or a Hugging Face tokenizer's files in one

Every field is checked on loading: an unknown or missing one, a wrong version, hash or shape is an error that says what
was expected and what was found. Memory is taken only for what the weights file has: see :mod:`longstride.nn.weights`.
This module knows no system: parts are built by whoever knows their kinds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from longstride.contract import DEFAULT_IDS, Limits, ModelFolderError, OptionError, SpecialIds, WorkError, option
from longstride.contract.options import as_dict, parse
from longstride.nn.weights import (
    SCALE,
    SCALED,
    Stored,
    fill,
    not_finite,
    quantized,
    read_stored,
    read_weights,
    sketched,
    uninitialised,
    write_tensors,
)
from longstride.text.files import file_sha256, finite, read_json
from longstride.text.folders import check_plain, folder_written_whole, recover, remove_left_over
from longstride.text.missing import check_there
from longstride.text.tokenizer import Tokenizer, load_tokenizer

T = TypeVar("T")
Module = TypeVar("Module", bound=nn.Module)

FORMAT = 1
CONFIG = "config.json"
TOKENIZER = "tokenizer.model"
_FILE_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,199}")
"""Nothing that leads out of the folder or that a file system may refuse."""
MODEL = "model"
"""The model folder inside a run's folder."""
STORED = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8}
"""What weights can be stored in; in int8 matrices are whole numbers with a scale for each row, and vectors float32."""
_STORED = {"F16": "fp16", "BF16": "bf16"}


def resolve(path: str) -> Path:
    """A model folder, or the one inside a run's folder."""
    inside = Path(path) / MODEL
    recover(inside)
    return inside if not (Path(path) / CONFIG).exists() and inside.is_dir() else Path(path)


@dataclass(frozen=True)
class PartConfig:
    """One set of weights."""

    kind: str = option(help="What it is: transformer.")
    options: dict[str, Any] = option(help="Its architecture.")
    weights: str = option(help="File name of its weights.")
    sha256: str = option(help="Hash of that file.")
    reuses: str | None = option(None, "Another part, whose weights stand for those of the same name that are not here.")


@dataclass(frozen=True)
class DecoderConfig:
    """One way of generating that the folder offers."""

    parts: dict[str, Any] = option(help="Role -> name of the part that plays it.")
    defaults: dict[str, Any] = option(factory=dict, help="Options that differ from the decoder's own defaults.")


@dataclass(frozen=True)
class FolderConfig:
    """All of config.json."""

    format: int = option(help="Version of this format.", least=0, most=10**6)
    tokenizer: str = option(help="File name of the tokenizer.")
    tokenizer_sha256: str = option(help="Hash of that file.")
    parts: dict[str, Any] = option(help="Name -> part.")
    decoders: dict[str, Any] = option(help="Name -> decoder.")
    default_decoder: str = option(help="The decoder used when none is named.")
    source_tokenizer: str | None = option(None, "File name of the source's tokenizer where it differs.")
    source_tokenizer_sha256: str | None = option(None, "Hash of that file.")
    special_ids: SpecialIds = option(DEFAULT_IDS, "Padding, start, end and the like, of all parts.")
    limits: Limits = option(Limits(), "How long outputs may be, and the like, where whoever decodes does not say.")
    sentences: bool = option(False, "It learnt from sentences: texts of several are split, and outputs joined again.")
    provenance: dict[str, Any] = option(factory=dict, help="Recipe, data, commit, scores: whatever made it.")


@dataclass(frozen=True)
class Part:
    """A part to be written."""

    kind: str
    options: Any
    module: nn.Module
    reuses: str | None = None
    """another part: weights that are its own, bit for bit, are not written again"""


class ModelFolder:
    """A folder opened for reading; weights are read when asked for."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = _read_config(self.path)
        self.parts = {
            name: _parsed(PartConfig, values, self.path, f"parts.{name}") for name, values in self.config.parts.items()
        }
        self.decoders = {
            name: _parsed(DecoderConfig, values, self.path, f"decoders.{name}")
            for name, values in self.config.decoders.items()
        }
        named = [self.config.tokenizer, self.config.source_tokenizer, *(part.weights for part in self.parts.values())]
        for file in named:
            if file is not None and not _FILE_NAME.fullmatch(file):
                raise ModelFolderError(f"{self.path / CONFIG}: expected a plain file name, found {file!r}.")
        for name, one in self.parts.items():
            if one.reuses is not None and (one.reuses not in self.parts or self.parts[one.reuses].reuses is not None):
                raise ModelFolderError(
                    f"{self.path / CONFIG}, parts.{name}: reuses expects a part that has all its own weights, "
                    f"found {one.reuses!r}."
                )
        for name, decoder in self.decoders.items():
            for role, part in decoder.parts.items():
                if not isinstance(part, str) or part not in self.parts:
                    raise ModelFolderError(
                        f"{self.path / CONFIG}: decoder {name!r} expects a part {part!r} as its {role}; "
                        f"the parts are {', '.join(self.parts)}."
                    )
        if self.config.default_decoder not in self.decoders:
            raise ModelFolderError(
                f"{self.path / CONFIG}: default_decoder is {self.config.default_decoder!r}; "
                f"the decoders are {', '.join(self.decoders)}."
            )

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Source and target tokenizer, often the same."""
        target = self._tokenizer(self.config.tokenizer, self.config.tokenizer_sha256)
        if self.config.source_tokenizer is None:
            return target, target.as_target()
        return self._tokenizer(self.config.source_tokenizer, self.config.source_tokenizer_sha256 or ""), target

    def load(self, name: str, build: Callable[[], Module]) -> Module:
        """A part as a module that `build` makes from its options, with its weights; refused before memory is taken."""
        self.sketch(name, build)
        module = uninitialised(build)
        part = self.parts[name]
        found = read_weights(self.path / part.weights)
        if part.reuses is not None:
            lent = read_weights(self.path / self.parts[part.reuses].weights)
            found = {**{key: lent[key] for key in module.state_dict() if key not in found}, **found}
        fill(module, found, self.path / part.weights)
        return module

    def sketch(self, name: str, build: Callable[[], Module]) -> Module:
        """A part on the meta device, shapes without weights, after comparing them with those in its file."""
        part = self.parts[name]
        found = self._header(part)
        file = self.path / part.weights
        if part.reuses is None:
            return sketched(build, found, file)
        lent = self._header(self.parts[part.reuses])
        return sketched(build, found, file, lent)

    def stored(self, name: str) -> str:
        """The precision that a part's weights are stored in, one of `STORED`; fp32 where they have several.

        ``integers`` where all of them are whole numbers by nature, as in tables.
        """
        found = {stored.dtype for stored in read_stored(self.path / self.parts[name].weights).values()}
        if SCALED in found:
            return "int8"
        floats = {kind for kind in found if "F" in kind}  # F16, BF16, F32, F64
        return _STORED.get(floats.pop(), "fp32") if len(floats) == 1 else "fp32" if floats else "integers"

    @property
    def name(self) -> str:
        """The name that its recipe gave the model, else that of its folder."""
        recipe = self.config.provenance.get("recipe")
        name = recipe.get("name") if isinstance(recipe, Mapping) else None
        return str(name or self.folder_name)

    @property
    def folder_name(self) -> str:
        """That of its folder, or of the run that this lies in."""
        path = self.path.resolve()
        return path.parent.name if path.name == MODEL else path.name

    @property
    def precision(self) -> str:
        """int8 where a part is stored so, else fp32; what is wrong with a file is told when it is loaded."""
        with suppress(ModelFolderError):
            return "int8" if any(self.stored(name) == "int8" for name in self.parts) else "fp32"
        return "fp32"

    @property
    def sha256(self) -> str:
        """One hash for the folder's weights and tokenizers: that of all their hashes, in order of part names."""
        return self.sha256_of(self.parts)

    def sha256_of(self, parts: Collection[str]) -> str:
        """The same of a folder that has these of its parts alone."""
        hashes = [f"{name}:{self.parts[name].sha256}" for name in sorted(parts)]
        hashes += [self.config.tokenizer_sha256, *filter(None, [self.config.source_tokenizer_sha256])]
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest()

    @property
    def identity(self) -> str:
        """A hash of the same and of all that config.json says of parts: what a training run builds on."""
        special = [] if self.special == DEFAULT_IDS else [as_dict(self.special)]
        told = json.dumps([self.sha256, self.config.parts, *special], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()

    @property
    def config_file(self) -> Path:
        """Its config.json, as errors name it."""
        return self.path / CONFIG

    @property
    def special(self) -> SpecialIds:
        """The special ids of all its parts."""
        return self.config.special_ids

    def _header(self, part: PartConfig) -> dict[str, Stored]:
        return read_stored(self._checked(part.weights, part.sha256))

    def _tokenizer(self, name: str, sha256: str) -> Tokenizer:
        found = load_tokenizer(self._checked(name, sha256))
        for id in ("pad", "unk", "eos"):
            told, own = getattr(self.special, id), getattr(found.special, id)
            if told != own:
                raise ModelFolderError(
                    f"{self.path / CONFIG}, special_ids: {id} expects the tokenizer's {own}, found {told}."
                )
        return found

    def _checked(self, name: str, sha256: str) -> Path:
        file = self.path / name
        if not file.is_file():
            raise ModelFolderError(f"{file}: the file is missing; {CONFIG} names it.")
        found = file_sha256(file)
        if found != sha256:
            raise ModelFolderError(
                f"{file}: the file is corrupt or was replaced: {CONFIG} expects sha256 {sha256[:12]}…, "
                f"found {found[:12]}…."
            )
        return file


def write(
    path: str | os.PathLike[str],
    parts: Mapping[str, Part],
    decoders: Mapping[str, DecoderConfig],
    default_decoder: str,
    tokenizer: Tokenizer,
    source_tokenizer: Tokenizer | None = None,
    provenance: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
    limits: Limits | None = None,
    beside: Mapping[str, str] | None = None,
    sentences: bool = False,
) -> None:
    """Write a whole folder, or nothing; one that is already there is replaced. Weights that are not finite are refused.

    `dtype` is what weights are stored in: see `STORED`.
    `beside` are texts for people, by file name: a card, records. Nothing reads them when the folder is loaded.
    `sentences`: the model reads sentences, and texts of several are to be split.

    A process that is killed here leaves the folder as it was or as it was to be: see text/folders.py.
    """
    path = Path(path).resolve()  # where a link points, not the link
    recover(path)
    if path.exists() and not (path / CONFIG).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise ModelFolderError(f"{path}: expected a model folder to replace, or none, found something else.")
    with folder_written_whole(path) as building:
        written: dict[str, Any] = {}
        for name, part in parts.items():
            lender = parts[part.reuses].module if part.reuses is not None else None
            written[name] = _written(part, building / f"{name}.safetensors", dtype, lender)
        tokenizer.save(building / TOKENIZER)
        config: dict[str, Any] = {
            "format": FORMAT,
            "tokenizer": TOKENIZER,
            "tokenizer_sha256": tokenizer.sha256,
            "parts": written,
            "decoders": {name: as_dict(decoder) for name, decoder in decoders.items()},
            "default_decoder": default_decoder,
            "provenance": finite(dict(provenance or {})),
        }
        if (special := _special(parts)) != DEFAULT_IDS:
            config["special_ids"] = as_dict(special)
        if limits is not None and limits != Limits():
            usual = as_dict(Limits())
            config["limits"] = {name: value for name, value in as_dict(limits).items() if value != usual[name]}
        if sentences:
            config["sentences"] = True
        if source_tokenizer is not None and source_tokenizer.sha256 != tokenizer.sha256:
            source_tokenizer.save(building / f"source.{TOKENIZER}")
            config["source_tokenizer"] = f"source.{TOKENIZER}"
            config["source_tokenizer_sha256"] = source_tokenizer.sha256
        (building / CONFIG).write_text(_as_json(config), encoding="utf-8")
        for name, text in (beside or {}).items():
            (building / name).write_text(text, encoding="utf-8")


def _as_json(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _special(parts: Mapping[str, Part]) -> SpecialIds:
    """The special ids that all parts with any have."""
    found = {name: part.options.special for name, part in parts.items() if hasattr(part.options, "special")}
    for name, special in found.items():
        if special != next(iter(found.values())):
            raise OptionError(f"parts.{name}: expected the special ids of {next(iter(found))!r}, found {special}.")
    return next(iter(found.values()), DEFAULT_IDS)


def drop_in(
    path: str | os.PathLike[str],
    name: str,
    part: Part,
    decoders: Mapping[str, DecoderConfig],
    provenance: Mapping[str, Any],
) -> None:
    """Add a part to a folder that is there, or replace one of its name; until config.json is replaced nothing shows.

    `decoders` are those that the part makes possible; to those that are there it is given as the role it has in them.
    """
    folder = ModelFolder(path)
    values = read_json(folder.path / CONFIG)
    old = folder.parts.get(name)
    if old is not None and old.kind != part.kind:
        raise ModelFolderError(f"{folder.path}: expected {name!r} to be of kind {part.kind}, found {old.kind}.")
    if getattr(part.options, "special", folder.special) != folder.special:
        raise ModelFolderError(f"{folder.path}: expected {name!r} to have the folder's special ids, found others.")
    if takers := [other for other, config in folder.parts.items() if config.reuses == name]:
        raise ModelFolderError(
            f"{folder.path}: expected {name!r} to be a part that others do without, found {takers[0]!r} reusing it."
        )
    for place in (folder.path / each for each in (CONFIG, *([old.weights] if old is not None else []))):
        if place.is_symlink():  # what it leads to may be others' too
            raise ModelFolderError(f"{place}: expected a file of the folder's own to replace, found a link.")
    remove_left_over(folder.path.glob(".part-*"))
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.path) as building:
        made = Path(building) / name
        written = _written(part, made, torch.float32)
        written["weights"] = f"{name}-{written['sha256'][:8]}.safetensors"
        values["parts"][name] = written
        for decoder, offered in decoders.items():
            there = values["decoders"].setdefault(decoder, as_dict(offered))
            for role, played_by in offered.parts.items():
                there["parts"].setdefault(role, played_by)
        values["provenance"] = finite({**values.get("provenance", {}), name: dict(provenance)})
        config = Path(building) / CONFIG
        config.write_text(_as_json(values), encoding="utf-8")
        for file in (made, config):
            os.chmod(file, 0o644)
        os.replace(made, folder.path / written["weights"])
        os.replace(config, folder.path / CONFIG)
    _drop_unnamed(folder.path, name, old)


def _drop_unnamed(path: Path, name: str, old: PartConfig | None) -> None:
    """Remove weights of a part that config.json no longer names, those that a killed process left among them."""
    named = {part.weights for part in ModelFolder(path).parts.values()}
    ours = re.compile(rf"{re.escape(name)}-[0-9a-f]{{8}}\.safetensors")
    for file in path.glob("*.safetensors"):
        if file.name not in named and (ours.fullmatch(file.name) or (old is not None and file.name == old.weights)):
            file.unlink(missing_ok=True)


def _written(part: Part, file: Path, dtype: torch.dtype, lender: nn.Module | None = None) -> dict[str, Any]:
    """Write a part's weights, less those that `lender` has too; what config.json says of them."""
    state = _stored(part.module, dtype)
    lent = {} if lender is None else _stored(lender, dtype)
    state = {key: own for key, own in state.items() if key not in lent or not _equal(own, lent[key])}
    tensors = {name: tensor for own in state.values() for name, tensor in own.items()}
    if broken := not_finite(tensors.items()):
        raise WorkError(
            f"{file.stem}: expected finite weights to write, found others in {broken.removesuffix(SCALE)!r}; "
            "nothing was written."
        )
    write_tensors(tensors, file)
    options = {name: value for name, value in as_dict(part.options).items() if name != "special"}  # told once for all
    told = as_dict(PartConfig(part.kind, options, file.name, file_sha256(file), part.reuses))
    if part.reuses is None:  # said only where there is something to say
        del told["reuses"]
    return told


def _stored(module: nn.Module, dtype: torch.dtype) -> dict[str, dict[str, Tensor]]:
    """A module's weights by name, each as the tensors that a file of this precision has of it."""
    return {key: _tensors(key, value.detach().cpu(), dtype) for key, value in module.state_dict().items()}


def _tensors(name: str, weight: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    if not weight.is_floating_point():  # whole numbers stay what they are
        return {name: weight.contiguous()}
    if dtype != torch.int8:
        return {name: weight.to(dtype).contiguous()}
    weight = weight.to(torch.float32).contiguous()
    return quantized(name, weight) if weight.dim() > 1 and weight.numel() else {name: weight}


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _read_config(path: Path) -> FolderConfig:
    check_there(path)
    if not path.is_dir():
        raise ModelFolderError(f"{path}: expected a model folder, found a file.")
    check_plain(path)
    file = path / CONFIG
    if not file.is_file():
        _check_ours(path, "manifest.json", "ONNX Runtime")
        raise ModelFolderError(f"{path}: expected a model folder, but it has no {CONFIG}.")
    try:
        values = read_json(file)
    except ValueError as error:
        raise ModelFolderError(f"{file}: not valid JSON ({error}).") from None
    except OSError as error:
        raise ModelFolderError(f"{file}: could not be read ({error.strerror}).") from None
    if not isinstance(values, dict):
        raise ModelFolderError(f"{file}: expected a JSON object, found {type(values).__name__}.")
    if "format" not in values and "model_type" in values:
        raise ModelFolderError(
            f"{path}: expected a model folder, found one of Hugging Face's: "
            f"`longstride import {shlex.quote(str(path))} -o DIR` makes a model folder of it."
        )
    if "format" not in values:
        _check_ours(path, "model.bin", "CTranslate2")
    if values.get("format") != FORMAT:
        raise ModelFolderError(f"{file}: expected format {FORMAT}, found {values.get('format')!r}.")
    told = {name: value for name, value in values.items() if name != "provenance"}
    if finite(told) != told:
        raise ModelFolderError(f"{file}: expected finite numbers, found NaN or Infinity.")
    return _parsed(FolderConfig, values, path, "")


def _check_ours(path: Path, theirs: str, program: str) -> None:
    """Refuse a folder that `export` writes for another program, known by a file of `theirs`."""
    if (path / theirs).is_file():
        raise ModelFolderError(
            f"{path}: expected a model folder, found one for {program}; name the one that it was exported from."
        )


def _parsed(cls: type[T], values: Any, path: Path, where: str) -> T:
    place = f"{path / CONFIG}" + (f", {where}" if where else "")
    if not isinstance(values, dict):
        raise ModelFolderError(f"{place}: expected a JSON object, found {values!r}.")
    try:
        return parse(cls, values, place)
    except OptionError as error:
        raise ModelFolderError(str(error)) from None
