"""Model folders: plain data, never code. One `config.json`, weights in safetensors, a tokenizer.

    config.json       format version; tokenizers; parts (kind, options, weights file, sha256); decoders (which part has
                      which role, default options); provenance
    *.safetensors     weights
    tokenizer.model   SentencePiece, or a word list

Every field is checked on loading: an unknown or missing one, a wrong version, hash or shape is an error that says what
was expected and what was found. This module knows no system: parts are built by whoever knows their kinds.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from longstride.contract import ModelFolderError, OptionError, option
from longstride.contract.options import as_dict, parse
from longstride.text.files import file_sha256
from longstride.text.tokenizer import Tokenizer, load_tokenizer

T = TypeVar("T")

FORMAT = 1
CONFIG = "config.json"
TOKENIZER = "tokenizer.model"
MODEL = "model"
"""The model folder inside a run's folder."""


def resolve(path: str) -> Path:
    """A model folder, or the one inside a run's folder."""
    inside = Path(path) / MODEL
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

    format: int = option(help="Version of this format.")
    tokenizer: str = option(help="File name of the tokenizer.")
    tokenizer_sha256: str = option(help="Hash of that file.")
    parts: dict[str, Any] = option(help="Name -> part.")
    decoders: dict[str, Any] = option(help="Name -> decoder.")
    default_decoder: str = option(help="The decoder used when none is named.")
    source_tokenizer: str | None = option(None, "File name of the source's tokenizer where it differs.")
    source_tokenizer_sha256: str | None = option(None, "Hash of that file.")
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
            return target, target
        return self._tokenizer(self.config.source_tokenizer, self.config.source_tokenizer_sha256 or ""), target

    def fill(self, name: str, module: nn.Module) -> None:
        """Load the weights of a part into a module built from its options."""
        part = self.parts[name]
        found = self._weights(part)
        if part.reuses is not None:
            lent = self._weights(self.parts[part.reuses])
            found = {**{key: lent[key] for key in module.state_dict() if key in lent}, **found}
        _fill(module, found, self.path / part.weights)

    @property
    def sha256(self) -> str:
        """One hash for the folder's weights and tokenizer: that of all their hashes, in order of part names."""
        import hashlib

        parts = [f"{name}:{self.parts[name].sha256}" for name in sorted(self.parts)]
        return hashlib.sha256("\n".join([*parts, self.config.tokenizer_sha256]).encode()).hexdigest()

    def _weights(self, part: PartConfig) -> dict[str, Tensor]:
        file = self._checked(part.weights, part.sha256)
        try:
            return load_file(file)
        except SafetensorError as error:
            raise ModelFolderError(f"{file}: not a safetensors file ({error}).") from None

    def _tokenizer(self, name: str, sha256: str) -> Tokenizer:
        return load_tokenizer(self._checked(name, sha256))

    def _checked(self, name: str, sha256: str) -> Path:
        if Path(name).name != name:
            raise ModelFolderError(f"{self.path / CONFIG}: expected a plain file name, found {name!r}.")
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
) -> None:
    """Write a whole folder, or nothing; one that is already there is replaced."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        written: dict[str, Any] = {}
        for name, part in parts.items():
            file = building / f"{name}.safetensors"
            lender = parts[part.reuses].module if part.reuses is not None else None
            written[name] = _written(part, file, dtype, lender)
        tokenizer.save(building / TOKENIZER)
        config: dict[str, Any] = {
            "format": FORMAT,
            "tokenizer": TOKENIZER,
            "tokenizer_sha256": tokenizer.sha256,
            "parts": written,
            "decoders": {name: as_dict(decoder) for name, decoder in decoders.items()},
            "default_decoder": default_decoder,
            "provenance": dict(provenance or {}),
        }
        if source_tokenizer is not None and source_tokenizer.sha256 != tokenizer.sha256:
            source_tokenizer.save(building / f"source.{TOKENIZER}")
            config["source_tokenizer"] = f"source.{TOKENIZER}"
            config["source_tokenizer_sha256"] = source_tokenizer.sha256
        (building / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        os.chmod(building, 0o755)
        for file in building.iterdir():
            os.chmod(file, 0o644)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}-old-", dir=path.parent))
            os.replace(path, old / "was")
            os.replace(building, path)
            shutil.rmtree(old)
        else:
            os.replace(building, path)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def drop_in(
    path: str | os.PathLike[str],
    name: str,
    part: Part,
    decoders: Mapping[str, DecoderConfig],
    provenance: Mapping[str, Any],
) -> None:
    """Add a part to a folder that is there, or replace one of its name; until config.json is replaced nothing shows."""
    folder = ModelFolder(path)
    values = json.loads((folder.path / CONFIG).read_text(encoding="utf-8"))
    old = folder.parts.get(name)
    if old is not None and old.kind != part.kind:
        raise ModelFolderError(f"{folder.path}: expected {name!r} to be of kind {part.kind}, found {old.kind}.")
    if takers := [other for other, config in folder.parts.items() if config.reuses == name]:
        raise ModelFolderError(
            f"{folder.path}: expected {name!r} to be a part that others do without, found {takers[0]!r} reusing it."
        )
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.path) as building:
        made = Path(building) / name
        written = _written(part, made, torch.float32)
        written["weights"] = f"{name}-{written['sha256'][:8]}.safetensors"
        values["parts"][name] = written
        for decoder, offered in decoders.items():
            values["decoders"].setdefault(decoder, as_dict(offered))
        values["provenance"] = {**values.get("provenance", {}), name: dict(provenance)}
        config = Path(building) / CONFIG
        config.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        for file in (made, config):
            os.chmod(file, 0o644)
        os.replace(made, folder.path / written["weights"])
        os.replace(config, folder.path / CONFIG)
    if old is not None and old.weights != written["weights"]:
        (folder.path / old.weights).unlink(missing_ok=True)


def _written(part: Part, file: Path, dtype: torch.dtype, lender: nn.Module | None = None) -> dict[str, Any]:
    """Write a part's weights, less those that `lender` has too; what config.json says of them."""
    state = _stored(part.module, dtype)
    if lender is not None:
        lent = _stored(lender, dtype)
        state = {key: value for key, value in state.items() if key not in lent or not torch.equal(value, lent[key])}
    save_file(state, file)
    told = as_dict(PartConfig(part.kind, as_dict(part.options), file.name, file_sha256(file), part.reuses))
    if part.reuses is None:  # said only where there is something to say
        del told["reuses"]
    return told


def _stored(module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """What a module's weights are in a file of this precision. Whole numbers stay what they are."""
    return {
        key: value.detach().to("cpu", dtype if value.is_floating_point() else value.dtype).contiguous()
        for key, value in module.state_dict().items()
    }


def _read_config(path: Path) -> FolderConfig:
    if not path.is_dir():
        raise ModelFolderError(f"{path}: expected a model folder, found {'a file' if path.exists() else 'nothing'}.")
    file = path / CONFIG
    if not file.is_file():
        raise ModelFolderError(f"{path}: expected a model folder, but it has no {CONFIG}.")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"{file}: not valid JSON ({error}).") from None
    if not isinstance(values, dict):
        raise ModelFolderError(f"{file}: expected a JSON object, found {type(values).__name__}.")
    if values.get("format") != FORMAT:
        raise ModelFolderError(f"{file}: expected format {FORMAT}, found {values.get('format')!r}.")
    return _parsed(FolderConfig, values, path, "")


def _parsed(cls: type[T], values: Any, path: Path, where: str) -> T:
    place = f"{path / CONFIG}" + (f", {where}" if where else "")
    if not isinstance(values, dict):
        raise ModelFolderError(f"{place}: expected a JSON object, found {values!r}.")
    try:
        return parse(cls, values, place)
    except OptionError as error:
        raise ModelFolderError(str(error)) from None


def _fill(module: nn.Module, found: dict[str, Tensor], file: Path) -> None:
    expected = module.state_dict()
    for name in expected:
        if name not in found:
            raise ModelFolderError(f"{file}: the weight {name!r} is missing.")
    for name, value in found.items():
        if name not in expected:
            raise ModelFolderError(f"{file}: found a weight {name!r} that the part's options do not have.")
        if value.shape != expected[name].shape:
            shapes = f"expected {list(expected[name].shape)}, found {list(value.shape)}"
            raise ModelFolderError(f"{file}: the weight {name!r} has the wrong shape: {shapes}.")
    module.load_state_dict(found)
