"""What records tell of a model beyond its name: its parts, what it and its base learnt from, whose drafter drafts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longstride.bench.records import ModelTag
from longstride.cli.provenance import model_tag
from longstride.model_folder import MODEL, ModelFolder, resolve
from longstride.translator import Translator

DISTILLED = "distilled"
"""A training file in a folder of this name is a teacher's output, as in the recipes."""


def tag_of(translator: Translator, drafter: str | None) -> ModelTag:
    """The model by name and hash, with the name of the drafter where that comes from another folder."""
    tag = model_tag(translator)
    return tag if drafter is None else ModelTag(f"{tag.name} + {_name(ModelFolder(resolve(drafter)))}", tag.hash)


def lineage(translator: Translator, drafter: str | None = None, decoder: str | None = None) -> dict[str, Any]:
    """Notes for a record: options of all parts that go with a decoder, the data of model and base, what was frozen."""
    folder = translator.folder
    parts = {role: dict(folder.parts[name].options) for role, name in _roles(folder, decoder).items()}
    notes = {"parts": parts, **_learnt(folder)}
    if drafter is not None:
        other = ModelFolder(resolve(drafter))
        notes["parts"] |= {name: dict(part.options) for name, part in other.parts.items() if part.kind == "drafter"}
        notes["drafter"] = {"name": _name(other), "hash": other.sha256, **_learnt(other)}
    return notes


def _roles(folder: ModelFolder, decoder: str | None) -> dict[str, str]:
    """Role -> part, for a decoder and all others on the same model: a folder may hold several, each called `model`."""
    if decoder not in folder.decoders:
        return {name: name for name in folder.parts}
    own = folder.decoders[decoder].parts
    beside = [one.parts for one in folder.decoders.values() if one.parts.get("model") == own.get("model")]
    return {role: part for parts in (*beside, own) for role, part in parts.items()}


def _learnt(folder: ModelFolder) -> dict[str, Any]:
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


def _name(folder: ModelFolder) -> str:
    recipe = folder.config.provenance.get("recipe")
    if isinstance(recipe, Mapping) and recipe.get("name"):
        return str(recipe["name"])
    path = folder.path.resolve()
    return path.parent.name if path.name == MODEL else path.name
