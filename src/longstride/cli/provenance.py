"""What records say about where they come from: the run, the code, the machine and the model."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from longstride.cli.console import commit
from longstride.version import __version__

if TYPE_CHECKING:
    import torch

    from longstride.bench.records import ModelTag, Origin
    from longstride.translator import Translator


def origin_of(experiment: str, translator: Translator) -> Origin:
    """This run of this code on the device that the translator uses, beginning now."""
    return origin_on(experiment, translator.runner.device)


def origin_on(experiment: str, device: torch.device) -> Origin:
    """This run of this code on a device, now."""
    from longstride.bench.machine import describe_machine
    from longstride.bench.records import Origin

    made_by, dirty = commit()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    machine = describe_machine(device)
    return Origin(experiment, uuid.uuid4().hex[:12], now, made_by, dirty, __version__, machine)


def model_tag(translator: Translator) -> ModelTag:
    """The name its recipe gave the model, else that of its folder; and the hash of its weights."""
    from longstride.bench.records import ModelTag
    from longstride.model_folder import MODEL

    folder = translator.folder
    recipe = folder.config.provenance.get("recipe")
    name = recipe.get("name") if isinstance(recipe, dict) else None
    path = folder.path.resolve()
    return ModelTag(str(name or (path.parent.name if path.name == MODEL else path.name)), folder.sha256)


def data_name(source: Path) -> str:
    """A test set by its source file, without the ending of a compressed one."""
    return source.name.removesuffix(".gz").removesuffix(".xz")
