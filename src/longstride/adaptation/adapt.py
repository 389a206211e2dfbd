"""All stages of adapting a model, one after another, each skipped if it is done: a run goes on where it was cut."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from longstride import model_folder
from longstride.adaptation import card
from longstride.adaptation.checking import check, held_out_workload, raced
from longstride.adaptation.decoding import Lines, Text, corpus, decode
from longstride.adaptation.lengths import choose, seconds_for, without_trees
from longstride.adaptation.options import AdaptOptions
from longstride.adaptation.training import VERIFIER, train, verifier_part
from longstride.adaptation.verdict import verdict
from longstride.adaptation.work import FORMAT, Work, refuse_other
from longstride.bench.record_files import read_records, to_line
from longstride.bench.record_parts import ModelTag, Origin
from longstride.bench.records import Exactness, Latency, Record
from longstride.bench.workload import Workload
from longstride.contract import UsageError, WorkError
from longstride.contract.options import as_dict
from longstride.model_folder import STORED, DecoderConfig, ModelFolder, Part
from longstride.registry import part_builder
from longstride.text.files import alone_in, file_sha256, read_json, written_whole
from longstride.text.folders import folder_written_whole
from longstride.training.metrics import Reporter
from longstride.translator import Translator
from longstride.verification.draft_policy import DraftPolicy

STAGES = ("import", "decode", "train", "lengths", "exactness", "race", "write")
RECORDS = "adaptation.jsonl"
"""Records of exactness and race, in the model folder."""
IMPORTED, FINISHED = "imported", "finished"


class Surroundings(Protocol):
    """What a run needs of whoever started it."""

    def bring_in(self, folder: Path, into: Path, languages: tuple[str | None, str | None]) -> dict[str, Any]:
        """Import a Hugging Face folder as a model folder, compared with transformers; what is to be told of it."""

    def open(self, folder: Path) -> Translator:
        """Load a model folder for decoding as users of the result will."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """So much of something is done."""

    def message(self, text: str) -> None:
        """A sentence."""

    def reporter(self) -> Reporter:
        """Who hears of training."""

    def origin(self, translator: Translator) -> Origin:
        """What records say of this run."""

    def race(self, translator: Translator, workload: Workload, policy: DraftPolicy) -> list[Latency]:
        """Time our decoders and other libraries side by side."""


@dataclass(frozen=True)
class Request:
    """What is adapted, with what, into what."""

    model: Path
    """a model folder of ours or a Hugging Face folder"""
    texts: Sequence[Text]
    """lines to learn from; several, where one drafter is to serve several pairs of languages"""
    output: Path
    work: Path
    options: AdaptOptions
    device: torch.device
    runtime: str
    precision: str
    """these two decide ids: the result is made for whoever runs it so"""
    name: str = "lines"
    """of the lines, in records"""
    race: bool = True
    assistant: Path | None = None
    """a smaller Hugging Face folder, which transformers races with"""

    @property
    def foreign(self) -> bool:
        """Whether the model is yet to be imported: our own config.json says its format."""
        return is_hugging_face(self.model)

    def origin(self) -> dict[str, Any]:
        """All that decides the result, by the names that a person knows."""
        told = "\n\n".join("\n".join(text.lines) for text in self.texts)
        digest = hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()
        pairs = [text.pair for text in self.texts if text.pair]
        settings = {name: _plain(value) for name, value in as_dict(self.options).items()}
        return {
            "model": _files_hash(self.model) if self.foreign else ModelFolder(self.model).identity,
            "source_lang": self.texts[0].languages[0],
            "target_lang": self.texts[0].languages[1],
            "pair": pairs or None,
            "source": digest,
            "device": self.device.type,
            "runtime": self.runtime,
            "precision": self.precision,
            "race": self.race,
            "assistant": _files_hash(self.assistant) if self.assistant is not None else None,
            **settings,
        }


def adapt(request: Request, around: Surroundings, until: str = STAGES[-1], keep: bool = False) -> Path | None:
    """Carry out the stages up to and with `until`; the finished folder, or None where the run was cut before it."""
    origin = request.origin()
    if there := _finished(request.output, {"format": FORMAT, **origin}):
        around.message(f"{request.output} is there already, adapted with the same model, lines and options.")
        if not keep:
            shutil.rmtree(request.work, ignore_errors=True)
        return there
    lines = [text.divided(request.options, len(request.texts)) for text in request.texts]
    work = Work(request.work, origin)
    with alone_in(request.work):
        return _carry_out(_Run(request, around, work, lines), request, work, until, keep)


def _carry_out(run: _Run, request: Request, work: Work, until: str, keep: bool) -> Path | None:
    for stage in STAGES[: STAGES.index(until) + 1]:
        try:
            if not run.carry_out(stage):
                return None
        except UsageError:
            if work.begun_here and work.found("decode") is None:  # misused: no work was done, none is left behind
                shutil.rmtree(work.folder, ignore_errors=True)
            raise
    if until != STAGES[-1]:
        return None
    _move(work.folder / FINISHED, request.output)
    if not keep:
        shutil.rmtree(work.folder)
    return request.output


class _Run:
    """The stages, with what they hand on."""

    def __init__(self, request: Request, around: Surroundings, work: Work, lines: Sequence[Lines]) -> None:
        self._request, self._around, self._work = request, around, work
        self._texts = list(zip(request.texts, lines, strict=True))
        self._opened: tuple[Path, Translator] | None = None

    def carry_out(self, stage: str) -> bool:
        """Do a stage unless it is done; False where somebody asked to stop."""
        found = self._work.found(stage)
        if found is None or (stage == "write" and not (self._work.folder / FINISHED).is_dir()):
            begun = time.perf_counter()
            act: Callable[[], dict[str, Any] | None] = getattr(self, f"_{stage}")
            figures = act()
            if figures is None:
                return False
            found = self._work.finish(stage, {"seconds": round(time.perf_counter() - begun, 1), **figures})
        if told := card.sentence(stage, found):
            self._around.message(f"{stage}: {told} ({found['seconds']:,.1f} s)")
        return True

    def _open(self, folder: Path) -> Translator:
        if self._opened is None or self._opened[0] != folder:
            self._opened = None  # before the next one takes memory
            self._opened = folder, self._around.open(folder)
        return self._opened[1]

    @property
    def _drafted(self) -> Translator:
        return self._open(self._work.folder / "drafted")

    @property
    def _policy(self) -> DraftPolicy:
        return DraftPolicy.from_text(self._figures("lengths")["lengths"])

    def _figures(self, stage: str) -> dict[str, Any]:
        found = self._work.found(stage)
        if found is None:
            raise UsageError(f"{self._work.folder}: expected the stage {stage} to be done, found it missing.")
        return found

    def _held_out(self, text: Text, lines: Sequence[str]) -> Workload:
        name = text.under(f"{self._request.name}, held out")
        return held_out_workload(text.of(self._drafted), lines, name, self._around.progress)

    @property
    def _model(self) -> Path:
        return self._work.folder / IMPORTED if self._request.foreign else self._request.model

    def _import(self) -> dict[str, Any]:
        if not self._request.foreign:
            return {}
        return self._around.bring_in(self._request.model, self._model, self._request.texts[0].languages)

    def _decode(self) -> dict[str, Any]:
        translator = self._open(self._model)
        verifier_part(translator.folder)
        for text, _ in self._texts:  # a language that there is none of is refused before any work is done
            text.of(translator)
        found = [
            decode(
                text.of(translator),
                lines,
                self._decoded(text),
                self._request.options,
                lambda found, text=text: self._around.progress(text.under("decoding"), found.lines, found.of),  # type: ignore[misc]
                len(self._texts),
            )
            for text, lines in self._texts
        ]
        added = ("kept", "dropped", "left_out", "further", "tokens", "seconds")
        sums = {name: sum(each[name] for each in found) for name in added}
        degenerate = sum((Counter(each["degenerate"]) for each in found), Counter[str]())
        return {**found[0], **sums, "degenerate": dict(sorted(degenerate.items()))}

    def _decoded(self, text: Text) -> Path:
        return self._work.folder / ("decoded" if not text.pair else f"decoded-{text.pair}")

    def _train(self) -> dict[str, Any] | None:
        options = self._request.options
        translator = self._open(self._model)
        decoded = [(text.of(translator), self._decoded(text)) for text, _ in self._texts]
        pairs = corpus(decoded, options.longest_target)
        del translator, decoded
        self._opened = None
        if self._request.device.type == "cuda":
            torch.cuda.empty_cache()
        return train(self._work, self._model, pairs, options, self._request.device, self._around.reporter())

    def _lengths(self) -> dict[str, Any]:
        given = self._request.options.lengths
        if given is not None:
            return {"lengths": str(given), "milliseconds": {}}
        text, lines = self._texts[0]
        options, device = self._request.options, self._request.device.type
        seconds = seconds_for(device, options.minutes)
        return choose(text.of(self._drafted), lines.held_out, options.rows, self._around.progress, seconds)

    def _exactness(self) -> dict[str, Any]:
        records = self._checked()
        if self._policy.trees and any(one.same_shape.differing for one in records):
            # A path's numbers are added up in another order than a chain's: on this device that is not the same.
            self._around.message("exactness: outputs of drafted trees differ from greedy's; chains are drafted.")
            self._work.finish("lengths", without_trees(self._figures("lengths"), self._request.options.block))
            records = self._checked()
        self._write_records("exactness", records)
        if broken := [one for one in records if one.same_shape.differing]:
            raise WorkError(
                f"expected greedy's output at the same step shape on held-out lines, found "
                f"{broken[0].same_shape.differing} of {broken[0].same_shape.sentences} outputs to differ "
                f"at batch size {card.size_of(broken[0])}; no folder was written."
            )
        return {
            card.size_of(one): {
                **one.options,
                "sentences": one.same_shape.sentences,
                "differing": one.same_shape.differing,
                "differing_from_steps_of_one": one.width_one.differing,
                **one.notes["counts"],
            }
            for one in records
        }

    def _checked(self) -> list[Exactness]:
        origin, tag = self._around.origin(self._drafted), self._tag(self._drafted)
        return [
            record
            for text, lines in self._texts
            for record in check(
                text.of(self._drafted),
                self._held_out(text, lines.held_out),
                self._policy,
                self._request.options.batch_sizes,
                origin,
                tag,
                self._around.progress,
                text.pair,
            )
        ]

    def _race(self) -> dict[str, Any]:
        if not self._request.race:
            return {}
        text, lines = self._texts[0]
        sample = self._held_out(text, raced(text.of(self._drafted), lines.held_out, self._request.options))
        records = self._around.race(text.of(self._drafted), sample, self._policy)
        self._write_records("race", records)
        return card.race_figures(records)

    def _write(self) -> dict[str, Any]:
        folder = ModelFolder(self._work.folder / "drafted")
        source, target = folder.tokenizers()
        policy = self._policy
        pays = any(length for _, length in policy.lengths) and not self._slower
        decoders = dict(folder.decoders)
        decoders["draft-verify"] = DecoderConfig(decoders["draft-verify"].parts, {"lengths": str(policy)})
        stages = {stage: self._figures(stage) for stage in STAGES[:-1]}
        records: list[Record] = [
            record
            for name in ("exactness", "race")
            if (file := self._work.folder / f"{name}.jsonl").exists()
            for record in read_records([file])
        ]
        told = verdict(stages, pays, records, self._request.options)
        base = ModelFolder(self._model)
        history = {
            **{name: told for name, told in base.config.provenance.items() if name == "hf"},  # exports give it back
            "adaptation": self._work.origin,
            "base": base.config.provenance,
            "base_name": self._name,
            "updates": stages["train"]["updates"],
            "pairs": stages["decode"]["kept"],
            "held_out": sum(len(lines.held_out) for _, lines in self._texts),
            **({"languages": named} if (named := [text.pair for text, _ in self._texts if text.pair]) else {}),
            "exactness": {size: each for size, each in stages["exactness"].items() if size != "seconds"},
        }
        parts = {
            name: Part(folder.parts[name].kind, module.options, module)
            for name in folder.parts
            for module in [folder.load(name, part_builder(folder, name))]
        }
        model_folder.write(
            self._work.folder / FINISHED,
            parts,
            decoders,
            "draft-verify" if pays else "greedy",
            target,
            source,
            history,
            STORED[folder.stored(VERIFIER)],
            folder.config.limits,
            {
                card.FILE: card.text(base, history, stages, records, pays, told),
                RECORDS: "".join(to_line(record) + "\n" for record in records),
            },
            folder.config.sentences,
        )
        return {"default": "draft-verify" if pays else "greedy", "verdict": told}

    @property
    def _slower(self) -> bool:
        """Whether greedy search won the race at every batch size: measured lengths may have been chosen by chance."""
        if self._request.options.lengths is not None:
            return False
        raced = [times for size, times in self._figures("race").items() if size != "seconds"]
        return bool(raced) and all(times["draft-verify"] > times["greedy"] for times in raced)

    @property
    def _name(self) -> str:
        if self._request.foreign:
            return self._request.model.resolve().name
        return ModelFolder(self._request.model).name

    def _tag(self, translator: Translator) -> ModelTag:
        return ModelTag(self._name, translator.folder.sha256)

    def _write_records(self, name: str, records: Sequence[Exactness] | Sequence[Latency]) -> None:
        with written_whole(self._work.folder / f"{name}.jsonl") as temporary:
            temporary.write_text("".join(to_line(record) + "\n" for record in records), encoding="utf-8")


def _move(made: Path, output: Path) -> None:
    """Put a folder in its place, whole; work may lie on another file system."""
    try:
        os.replace(made, output)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with folder_written_whole(output) as building:
            shutil.copytree(made, building, dirs_exist_ok=True)


def _finished(output: Path, origin: dict[str, Any]) -> Path | None:
    """The folder, if it is there and was made of just this; anything else that is there is refused."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    if not (output / model_folder.CONFIG).is_file():
        raise UsageError(f"{output}: expected a new folder to write the adapted model to, found something else.")
    made_of = ModelFolder(output).config.provenance.get("adaptation")
    if not isinstance(made_of, dict):
        raise UsageError(f"{output}: expected a new folder to write the adapted model to, found a model in it.")
    refuse_other(output / model_folder.CONFIG, made_of, _plain(origin))
    return output


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder's config.json is one of transformers'."""
    if not (folder / model_folder.CONFIG).is_file():
        return False
    try:
        values = read_json(folder / model_folder.CONFIG)
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and "format" not in values and "model_type" in values


def _files_hash(folder: Path) -> str:
    """One hash for the files of a folder, by name and content."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    told = "\n".join(f"{file.name}:{file_sha256(file)}" for file in files)
    return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
