"""What records say about where they come from: the run, the code, the machine, the model and what it learnt from."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longstride.cli.console import commit
from longstride.version import __version__

if TYPE_CHECKING:
    import torch

    from longstride.bench.record_parts import ModelTag, Origin
    from longstride.model_folder import ModelFolder
    from longstride.translator import Translator

DISTILLED = "distilled"
"""A training file in a folder of this name is a teacher's output, as in the recipes."""


def origin_on(experiment: str, device: torch.device) -> Origin:
    """This run of this code on a device, now."""
    from longstride.bench.machine import describe_machine
    from longstride.bench.record_parts import Origin

    made_by, dirty = commit()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    machine = describe_machine(device)
    return Origin(experiment, uuid.uuid4().hex[:12], now, made_by, dirty, __version__, machine)


def origin_of(experiment: str | None, translator: Translator) -> Origin:
    """The same on the device that the translator uses; an experiment without a name is called after the model."""
    return origin_on(experiment or translator.folder.name, translator.runner.device)


def data_name(source: Path) -> str:
    """A test set by its source file, without the ending of a compressed one."""
    return source.name.removesuffix(".gz").removesuffix(".xz")


def model_tag(translator: Translator, drafter: str | None = None) -> ModelTag:
    """The model by name and hash, with the name of the drafter where that comes from another folder."""
    from longstride.bench.record_parts import ModelTag

    names = [folder.name for folder in (translator.folder, *_drafters(drafter))]
    return ModelTag(" + ".join(names), translator.folder.sha256)


def model_notes(translator: Translator, drafter: str | None = None, decoder: str | None = None) -> dict[str, Any]:
    """Notes for a record: options of all parts that go with a decoder, the data of model and base, what was frozen."""
    folder = translator.folder
    parts = {role: dict(folder.parts[name].options) for role, name in _roles(folder, decoder).items()}
    notes = {"parts": parts, **_training(folder)}
    for other in _drafters(drafter):
        notes["parts"] |= {name: dict(part.options) for name, part in other.parts.items() if part.kind == "drafter"}
        notes["drafter"] = {"name": other.name, "hash": other.sha256, **_training(other)}
    return notes


def _drafters(drafter: str | None) -> list[ModelFolder]:
    from longstride.cli.options import model_path
    from longstride.model_folder import ModelFolder

    return [] if drafter is None else [ModelFolder(model_path(drafter))]


def _roles(folder: ModelFolder, decoder: str | None) -> dict[str, str]:
    """Role -> part, for a decoder and all others on the same model: a folder may hold several, each called `model`."""
    if decoder not in folder.decoders:
        return {name: name for name in folder.parts}
    own = folder.decoders[decoder].parts
    beside = [one.parts for one in folder.decoders.values() if one.parts.get("model") == own.get("model")]
    return {role: part for parts in (*beside, own) for role, part in parts.items()}


def _training(folder: ModelFolder) -> dict[str, Any]:
    """What a model and its base were trained on, as far as the folder says."""
    provenance = folder.config.provenance
    found: dict[str, Any] = {}
    recipe, base = provenance.get("recipe"), provenance.get("base")
    if isinstance(recipe, Mapping):
        found["data"] = _data(recipe)
        if recipe.get("base"):
            found["frozen"] = bool(recipe.get("training", {}).get("freeze"))
    if isinstance(base, Mapping) and isinstance(base.get("recipe"), Mapping):
        found["base"] = base["recipe"].get("name", "")
        found["base_data"] = _data(base["recipe"])
    return found


def _data(recipe: Mapping[str, Any]) -> str:
    """``original``, ``distilled``, or the name of a task that is generated"""
    data = recipe.get("data", {})
    task = str(data.get("task", "files"))
    if task != "files":
        return task
    return DISTILLED if DISTILLED in Path(str(data.get("train_target", ""))).parts else "original"
