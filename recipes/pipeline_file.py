"""Pipelines as files: stages of commands, templates that they share, and what each stage reads and makes. Runs nothing.

    vars:                      # values to fill in as {name}; `--set name=value` changes them. `work` has to be there
      work: runs/example
    templates:                 # fields that several stages share
      train: {command: "longstride train {recipe} -o {work}/{name} --resume", outputs: ["{work}/{name}/model"]}
    stages:                    # in the order in which they are carried out
      students:
        use: train             # the template's fields, where the stage has none of its own
        with: {recipe: a.yaml} # more values to fill in
        foreach:               # one stage for every combination, students/small.1, ...; {name} is `small.1`
          size: {small: {width: 256}, base: {width: 512}}   # {size} is the key; its values come along
          seed: [1, 2]
        command: ...           # one, or a list; `longstride` and `python` are those that run the pipeline
        outputs: [...]         # files and folders that are there when it is done
        inputs: [...]          # what its command does not name (see below)
        folder: ...            # moved away before it is made anew from other inputs (default: its outputs)
        minutes: 2.5           # estimate
        beside: true           # may run beside others that may

What a stage reads is found in its commands: a word, or the value of name=value, that is an output of an earlier stage,
lies in one or holds one; and a file that is there already and does not lie in `work`, as recipes and texts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from os.path import isfile, normpath
from pathlib import Path
from typing import Any

import yaml

from longstride.contract import InputError

PARTS = ("about", "jobs", "vars", "templates", "stages")
FIELDS = ("use", "with", "foreach", "command", "inputs", "outputs", "folder", "minutes", "beside")
PLACE = re.compile(r"\{([\w-]+)\}")
DEPTH = 20
"""values within values that are filled in; what goes on for longer names itself"""


@dataclass(frozen=True)
class Stage:
    """Commands that are carried out one after another, and make something."""

    name: str
    commands: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    folder: str = ""
    minutes: float = 0.0
    beside: bool = False

    @property
    def makes(self) -> tuple[str, ...]:
        """What is moved away before it is made anew."""
        return (self.folder,) if self.folder else self.outputs


@dataclass(frozen=True)
class Pipeline:
    """All stages, and the folder that they work in."""

    work: Path
    stages: tuple[Stage, ...]
    jobs: int = 1
    """stages at once, of those that may run beside others"""


def read_pipeline(path: Path, changes: Mapping[str, str]) -> Pipeline:
    """A pipeline file with other values for its variables."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: expected a pipeline in YAML, found none ({' '.join(str(error).split())}).") from None
    _known(values, PARTS, str(path))
    variables = values.get("vars") or {}
    _known(changes, tuple(variables), f"{path}, vars")
    variables = {**variables, **changes}
    if "work" not in variables:
        raise InputError(f"{path}, vars: expected `work`, the folder for all that is made, found {list(variables)}.")
    templates = values.get("templates") or {}
    stages = [
        stage
        for name, fields in (values.get("stages") or {}).items()
        for stage in _expanded(name, fields, templates, variables, f"{path}, stages.{name}")
    ]
    work = _filled("{work}", variables, str(path))
    return Pipeline(Path(work), tuple(_with_inputs(stages, normpath(work), str(path))), int(values.get("jobs", 1)))


def _known(values: Any, names: Sequence[str], where: str) -> None:
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: expected names and values, found {values!r}.")
    for name in values:
        if name not in names:
            raise InputError(f"{where}: expected one of {', '.join(names)}, found {name!r}.")


def _expanded(name: str, own: Any, templates: Any, variables: Mapping[str, Any], where: str) -> Iterator[Stage]:
    """One stage for every combination of `foreach`."""
    _known(own, FIELDS, where)
    if own.get("use") and own["use"] not in templates:
        names = ", ".join(templates) or "there is none"
        raise InputError(f"{where}: expected a template to use ({names}), found {own['use']!r}.")
    shared = templates[own["use"]] if own.get("use") else {}
    _known(shared, FIELDS, f"{where}, {own.get('use')}")
    fields = {**shared, **own, "with": {**shared.get("with", {}), **own.get("with", {})}}
    axes = fields.get("foreach") or {}
    for keys in product(*axes.values()):
        values = {**variables, **fields["with"]}
        for (axis, choices), key in zip(axes.items(), keys, strict=True):
            values.update({axis: key, **((choices[key] or {}) if isinstance(choices, Mapping) else {})})
        short = ".".join(map(str, keys))
        values = {"name": short or name, "stage": f"{name}/{short}" if short else name, **values}

        def texts(field: str, values: dict[str, Any] = values) -> tuple[str, ...]:
            found = fields.get(field) or []
            return tuple(_filled(one, values, where) for one in ([found] if isinstance(found, str) else found))

        commands = tuple(shlex.join(shlex.split(one)) for one in texts("command"))
        if not all(commands) or not commands:
            raise InputError(f"{where}: expected a command, found none.")
        yield Stage(
            values["stage"],
            commands,
            tuple(map(normpath, texts("inputs"))),
            tuple(map(normpath, texts("outputs"))),
            "".join(map(normpath, texts("folder"))),
            float(_filled(str(fields.get("minutes", 0.0)), values, where)),
            bool(fields.get("beside", False)),
        )


def _filled(text: str, values: Mapping[str, Any], where: str) -> str:
    """Values in the place of their names, the innermost first: {{data}} is what the value of `data` names."""

    def value(place: re.Match[str]) -> str:
        if place[1] not in values:
            raise InputError(f"{where}: expected a value for {{{place[1]}}}, found none.")
        found = values[place[1]]
        return str(found).lower() if isinstance(found, bool) else str(found)

    for _ in range(DEPTH):
        if not PLACE.search(text):
            return text
        text = PLACE.sub(value, text)
    raise InputError(f"{where}: expected values that end, found {text[:80]!r} again and again.")


def _with_inputs(stages: Sequence[Stage], work: str, where: str) -> Iterator[Stage]:
    """Each with all that it reads."""
    made: dict[str, str] = {}
    names: set[str] = set()
    for stage in stages:
        found = list(stage.inputs)
        for path in _paths(stage.commands):
            found += [one for one in made if one == path or one.startswith(f"{path}/")]
            inside = any(path.startswith(f"{one}/") for one in made)
            if inside or (isfile(path) and not path.startswith(f"{work}/")):
                found.append(path)
        for one in stage.outputs:
            if one in made:
                raise InputError(f"{where}: expected one stage that makes {one}, found {made[one]} and {stage.name}.")
        if stage.name in names:
            raise InputError(f"{where}: expected every stage once, found {stage.name} twice.")
        names.add(stage.name)
        made.update(dict.fromkeys(stage.outputs, stage.name))
        yield replace(stage, inputs=tuple(path for path in dict.fromkeys(found) if path not in stage.outputs))


def _paths(commands: Sequence[str]) -> Iterator[str]:
    for command in commands:
        for word in shlex.split(command)[1:]:
            yield from {normpath(one) for one in (word, word.partition("=")[2]) if one}
