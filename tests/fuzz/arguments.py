"""Values of options, usual and faulty, with the files that they name: by what an option is about, or by its type."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from xml.sax.saxutils import escape

import yaml

from longstride.contract import Limits
from longstride.distillation.options import DistillOptions
from longstride.recipe import OBJECTIVES, Recipe
from longstride.registry import DECODERS, PARTS
from longstride.runtime.names import RUNTIMES
from longstride.systems.lattice.build import BuildOptions
from tests.fuzz import odd_paths, odd_text, spoiling, values
from tests.fuzz.grammar import Command, Parameter
from tests.fuzz.material import MODELS, Material, some_records
from tests.fuzz.values import Field

WORK = ("steps", "epochs", "pairs", "valid_pairs", "accumulation", "sentences", "passes", "iterations", "processes")
"""Options that ask for more work: much of it takes long and is no hang, so that no more than this is asked for."""
LITTLE = 20

LEFT_ALONE = ("training.compile", "training.max_minutes", "data.task")
"""Options of recipes that take long by their nature, or lead away from what is small."""

FEW_DECODERS = ("greedy", "beam", "blockwise", "draft-verify", "draft", "interleaved", "lattice", "counts")


class Arguments:
    """Draws the values of one command line."""

    def __init__(self, rng: Random, material: Material, command: Command, lines: int) -> None:
        self.rng = rng
        self.material = material
        self.command = command
        self.lines = lines
        """of every text, so that sources and references go together"""
        self.decoder = rng.choice(FEW_DECODERS)
        self.made = 0
        self.no_number: list[str] = []
        """options that expect a number and were given nan or inf"""

    def value(self, one: Parameter, faulty: bool) -> str:
        """By what the option is about; for one that is not known here, by its type."""
        value = self._drawn(one, faulty)
        if one.kind in (int, float):
            self._note(one.flags[-1] if one.flags else one.name, value)
        return value

    def _drawn(self, one: Parameter, faulty: bool) -> str:
        maker = MAKERS.get(one.name)
        if maker is not None:
            return maker(self, faulty)
        if one.kind is Path:
            if faulty:
                return odd_paths.odd(self.rng, written=_writes(one))
            return self._new("txt") if _writes(one) else self._text(False)
        if faulty or one.kind is str:
            value = values.odd(self.rng, one.kind)
            return value if one.name not in WORK or _bearable(value) else "2"
        return values.small(self.rng, one.least)

    # Values by what options are about.

    def _model(self, faulty: bool, names: tuple[str, ...] = MODELS) -> str:
        rng = self.rng
        if faulty and rng.random() < 0.2:
            return odd_paths.odd(rng, written=False)
        name = rng.choice((names[0], *names)) if not faulty else rng.choice(names)
        if self.command.name == "doctor" or (self.command.name == "demo" and not faulty):
            name = "tiny"  # of which every decoder is shown, or every runtime tried
        elif self.decoder not in ("greedy", "beam") and "family" in names and rng.random() < 0.9:
            name = "family"
        folder = Path("models") / f"{name}{self._number()}"
        self.material.model(name, folder)
        if self.command.words[0] == "demo":
            inside = folder / "model" if name == "run" else folder
            content = self.material.examples if not faulty else rng.choice(("", "a\n", "a\tb\tc\n", "\t\n", "a\tb"))
            (inside / "examples.tsv").write_text(content, encoding="utf-8")
        if faulty:
            spoiling.spoil_model(rng, folder)
        return str(folder)

    def _drafter(self, faulty: bool) -> str:
        return self._model(faulty, ("family",))

    def _tables(self, faulty: bool) -> str:
        return self._model(faulty, ("tables", "family"))

    def _tokenizer(self, faulty: bool) -> str:
        if faulty and self.rng.random() < 0.3:
            return odd_paths.odd(self.rng, written=False)
        name = self.rng.choice(("tiny", "pieces"))
        content = (self.material.folder / name / "tokenizer.model").read_bytes()
        return self._file("model", spoiling.flipped(self.rng, content) if faulty else content)

    def _text(self, faulty: bool) -> str:
        rng = self.rng
        if faulty and rng.random() < 0.3:
            return odd_paths.odd(rng, written=False)
        content = odd_text.odd(rng, self.lines) if faulty else odd_text.usual(rng, self.lines)
        ending = rng.choice(("txt", "txt", "txt", "gz", "xz"))
        if ending != "txt":
            content = odd_text.packed(rng, content, f".{ending}", whole=not faulty)
        return self._file(ending, content)

    def _drafts(self, faulty: bool) -> str:
        """An earlier output, or a translation memory."""
        if self.rng.random() < 0.4:
            return self._text(faulty)
        lines, ending = ["a b c", "t s r q p", "a & b < c"], self.rng.choice(("tmx", "tsv"))
        content = "".join(f"{line}\t{line}\n" for line in lines)
        if ending == "tmx":
            segments = (f"<tuv><seg>{escape(line)}</seg></tuv>" * 2 for line in lines)
            content = f"<tmx><body>{''.join(f'<tu>{both}</tu>' for both in segments)}</body></tmx>"
        return self._file(ending, spoiling.flipped(self.rng, content.encode()) if faulty else content.encode())

    def _written(self, faulty: bool) -> str:
        return odd_paths.odd(self.rng, written=True) if faulty else self._new(self.rng.choice(("txt", "json", "svg")))

    def _output(self, faulty: bool) -> str:
        if not faulty and self.command.name == "bench":
            return self._record(False)
        return self._written(faulty)

    def _record(self, faulty: bool) -> str:
        """A file of records to append to: a new one, or one that holds some."""
        rng = self.rng
        if faulty and rng.random() < 0.7:
            return odd_paths.odd(rng, written=True)
        return self._records(faulty) if faulty or rng.random() < 0.3 else self._new("jsonl")

    def _records(self, faulty: bool) -> str:
        rng = self.rng
        if faulty and rng.random() < 0.2:
            return odd_paths.odd(rng, written=False)
        lines = [line.encode() for line in some_records(self.material, rng)]
        if faulty:
            place = rng.randrange(len(lines))
            lines[place] = spoiling.json_text(rng, json.loads(lines[place]))
        return self._file("jsonl", b"".join(line + b"\n" for line in lines), rng.choice(("in", "out")))

    def _page(self, faulty: bool) -> str:
        rng = self.rng
        if faulty and rng.random() < 0.5:
            return odd_paths.odd(rng, written=True)
        name = rng.choice(("race", "quality", "training", "nothing", "", "a b", "[x]"))
        ends = "" if faulty and rng.random() < 0.5 else "<!-- /report -->\n"
        return self._file("md", f"# Page\n\n<!-- report:{name} -->\nold\n{ends}\nend\n".encode(), "out")

    def _recipe(self, faulty: bool) -> str:
        rng = self.rng
        if faulty and rng.random() < 0.15:
            return odd_paths.odd(rng, written=False)
        self.material.model("tiny", Path("base"))
        recipe = json.loads(json.dumps(self.material.recipes[rng.choice(sorted(self.material.recipes))]))
        if not faulty:
            return self._file("yaml", yaml.safe_dump(recipe).encode())
        if rng.random() < 0.15:
            return self._file("yaml", spoiling.flipped(rng, yaml.safe_dump(recipe).encode()))
        if rng.random() < 0.15:
            spoiling.spoil_model(rng, Path("base"))
        elif rng.random() < 0.2:
            data = {f"{split}_{side}": self._text(rng.random() < 0.3) for split in ("train", "valid") for side in SIDES}
            recipe["data"] |= {"task": "files", **data}
        else:
            recipe = spoiling.spoil_json(rng, recipe)
        _keep_small(recipe)
        return self._file("yaml", yaml.safe_dump(recipe, allow_unicode=True).encode("utf-8", "surrogatepass"))

    def _pairs(self, faulty: bool) -> str:
        rng = self.rng
        if faulty and rng.random() < 0.3:
            return odd_paths.odd(rng, written=False)
        errors = [{"contrastive": "a c", "type": "noun", "distance": rng.randint(0, 20)}]
        entries = [{"source": "a b", "reference": "b a", "errors": errors} for _ in range(self.lines)]
        return self._file("json", spoiling.json_text(rng, entries, spoilt=faulty))

    def _alignments(self, faulty: bool) -> str:
        rng = self.rng
        if faulty and rng.random() < 0.3:
            return odd_paths.odd(rng, written=False)
        lines = [rng.choice(("0-0", "0-0 1-1", "", "1-0 0-1"))] * self.lines
        if faulty:
            lines[rng.randrange(len(lines))] = rng.choice(
                ("0", "0-", "a-b", "0-99", "-1-0", f"0-{10**20}", "0-0-0", "²-0")
            )
        return self._file("align", "".join(line + "\n" for line in lines).encode())

    def _decoder(self, faulty: bool) -> str:
        return values.odd(self.rng, str) if faulty else self.decoder

    def _decoders(self, faulty: bool) -> str:
        rng = self.rng
        found = []
        for _ in range(rng.randint(1, 2)):
            name = rng.choice(("greedy", "beam", self.decoder))
            found.append(name + (f":{self._own_option(name, faulty)}" if rng.random() < 0.4 else ""))
        if faulty and rng.random() < 0.3:
            found.append(
                rng.choice(("", ":", "greedy:", "greedy:;", "x/greedy", "/greedy", "greedy:x", "greedy,greedy"))
            )
        return ",".join(found)

    def _own_option(self, decoder: str, faulty: bool) -> str:
        return self._assigned([*values.fields(DECODERS[decoder].options), *values.fields(Limits)], faulty)

    def _assigned(self, fields: list[Field], faulty: bool) -> str:
        found = values.assignment(self.rng, fields, faulty)
        name, _, value = found.partition("=")
        if any(one.name == name and one.number in (int, float) for one in fields):
            self._note(name, value)
        return found

    def _note(self, name: str, value: str) -> None:
        try:
            if not math.isfinite(float(value)):
                self.no_number.append(f"{name}={value}")
        except ValueError:
            return

    def _set(self, faulty: bool) -> str:
        """An option of the decoder or, of commands that have none, of what they make."""
        name = self.command.name
        if name == "train":
            return self._bounded(_recipe_fields(), faulty)
        if name == "lattice build":
            return self._bounded(list(values.fields(BuildOptions)), faulty)
        return self._own_option("lattice" if name == "lattice inspect" else self.decoder, faulty)

    def _option(self, faulty: bool) -> str:
        return self._bounded(list(values.fields(DistillOptions)), faulty)

    def _bounded(self, fields: list[Field], faulty: bool) -> str:
        """An assignment that does not ask for endless work."""
        fields = [one for one in fields if one.name not in LEFT_ALONE]
        while True:
            found = self._assigned(fields, faulty)
            name, _, value = found.partition("=")
            if name.rpartition(".")[2] not in WORK or _bearable(value):
                return found

    def _device(self, faulty: bool) -> str:
        odd = (
            "cuda",
            "cuda:0",
            "cuda:99",
            "cuda:-1",
            "cpu:1",
            "cpu:0",
            "mps",
            "meta",
            "xla",
            "",
            "auto ",
            "cuda:x",
            "CPU",
        )
        return self.rng.choice(odd) if faulty else self.rng.choice(("auto", "cpu"))

    def _runtime(self, faulty: bool) -> str:
        return values.odd(self.rng, str) if faulty else self.rng.choice(("eager", "eager", *RUNTIMES))

    def _precision(self, faulty: bool) -> str:
        odd = ("", "fp8", "FP32", "int4", "float32")
        return self.rng.choice(odd if faulty else ("fp32", "fp32", "int8", "fp16", "bf16", "fp64"))

    def _task(self, faulty: bool) -> str:
        return values.odd(self.rng, str) if faulty else self.rng.choice(("translation", "correction", "summarization"))

    def _to(self, faulty: bool) -> str:
        return values.odd(self.rng, str) if faulty else self.rng.choice(("hf", "ctranslate2", "onnx"))

    def _peers(self, faulty: bool) -> str:
        return self.rng.choice(("", ",", "hf,,", "x") if faulty else ("hf", "ctranslate2", "hf,ctranslate2"))

    def _sizes(self, faulty: bool) -> str:
        odd = ("", ",", "1,", "0", "-1", "1,1", "a", "1.5", "²", f"{10**20}", "1000000", "1 2", "nan")
        return self.rng.choice(odd if faulty else ("1", "1,2", "4,1,2"))

    def _sample(self, faulty: bool) -> str:
        odd = ("", "0", "-1", "x", "greedy=", "=1", "greedy=0", "greedy=x", "nobody=1", f"{10**20}", "greedy=1=2", "²")
        return self.rng.choice(odd if faulty else ("1", "2", "greedy=1"))

    def _threads(self, faulty: bool) -> str:
        return values.odd(self.rng, int) if faulty else self.rng.choice(("1", "2"))

    def _processes(self, faulty: bool) -> str:
        return self.rng.choice(("0", "-1", "x", "", "nan", f"{10**20}")) if faulty else "1"

    def _passes(self, faulty: bool) -> str:
        return self.rng.choice(("0", "-1", "x", "", "nan", "1.5", "2")) if faulty else "1"

    def _member(self, faulty: bool) -> str:
        return values.odd(self.rng, str) if faulty else self.rng.choice(("greedy", "beam"))

    # Files.

    def _number(self) -> int:
        self.made += 1
        return self.made

    def _file(self, ending: str, content: bytes, folder: str = "in") -> str:
        path = Path(folder) / f"{self._number()}.{ending}"
        path.write_bytes(content)
        return str(path)

    def _new(self, ending: str) -> str:
        return os.path.join("out", f"{self._number()}.{ending}")


SIDES = ("source", "target")

MAKERS: dict[str, Callable[[Arguments, bool], str]] = {
    "model": Arguments._model,
    "drafter": Arguments._drafter,
    "drafts": Arguments._drafts,
    "tables": Arguments._tables,
    "tokenizer": Arguments._tokenizer,
    "output": Arguments._output,
    "record": Arguments._record,
    "records": Arguments._records,
    "page": Arguments._page,
    "recipe": Arguments._recipe,
    "pairs": Arguments._pairs,
    "alignments": Arguments._alignments,
    "decoder": Arguments._decoder,
    "decoders": Arguments._decoders,
    "set": Arguments._set,
    "option": Arguments._option,
    "device": Arguments._device,
    "runtime": Arguments._runtime,
    "precision": Arguments._precision,
    "task": Arguments._task,
    "to": Arguments._to,
    "peers": Arguments._peers,
    "sizes": Arguments._sizes,
    "sample": Arguments._sample,
    "threads": Arguments._threads,
    "processes": Arguments._processes,
    "passes": Arguments._passes,
    "source": Arguments._text,
    "target": Arguments._text,
    "reference": Arguments._text,
    "input": Arguments._text,
    "warmup": Arguments._text,
    "check_with": Arguments._text,
    "against": Arguments._text,
    "mutual_information": Arguments._model,
    "source_tokenizer": Arguments._tokenizer,
    "trace": Arguments._written,
    "batch_sizes": Arguments._sizes,
    "baseline": Arguments._member,
    "same_as": Arguments._member,
}
"""Options by what they are about; others are drawn by their type."""


def _writes(one: Parameter) -> bool:
    """Whether a file is written there, as its help says."""
    return any(
        word in one.help.lower() for word in ("write", "append", "draw", "folder for", "folder to make", "as graphviz")
    )


def _bearable(value: str) -> bool:
    """Whether so much work ends soon, or is none at all."""
    try:
        return not LITTLE < float(value) < math.inf
    except ValueError:
        return True


def _recipe_fields() -> list[Field]:
    """Of recipes, with what is inside their model and objective."""
    inner = [one for kind in PARTS.values() for one in values.fields(kind.options, "model.")]
    inner += [one for kind in OBJECTIVES.values() for one in values.fields(kind.options, "objective.")]
    return [one for one in values.fields(Recipe) if one.name not in ("model", "objective")] + inner


def _keep_small(recipe: Any) -> None:
    """Take back what asks for endless work."""
    for section in ("training", "data", "validation"):
        inside = recipe.get(section) if isinstance(recipe, dict) else None
        if not isinstance(inside, dict):
            continue
        for name, value in list(inside.items()):
            if f"{section}.{name}" in LEFT_ALONE and name != "task":
                del inside[name]
            elif name in WORK and isinstance(value, int | float | str) and not _bearable(str(value)):
                inside[name] = 2
