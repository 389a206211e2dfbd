"""Checkpoints on disk: everything a run needs to go on as if it had never stopped. Data only, no pickle.

    step-00001000/
        model.safetensors       weights and buffers
        training.safetensors    Adam's moments and step counts, states of random generators
        state.json              format, step, place in the data, scores, loss scale, options (for the reader)

A checkpoint is written into a hidden folder beside the others and then renamed, so that whoever lists the folder sees
whole checkpoints only. Writing happens in a background thread from a snapshot: on a GPU the snapshot is a copy within
the device's memory (milliseconds for a 52 M model), and training goes on while it travels to the disk.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from longstride.contract import LongstrideError, ModelFolderError, WorkError
from longstride.nn.weights import not_finite, read_tensors, write_tensors
from longstride.text.files import read_json

FORMAT = 1
_Ready = tuple[torch.device, torch.cuda.Event] | None
_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint."""

    step: int
    model: dict[str, Tensor]
    training: dict[str, Tensor]
    state: dict[str, Any]
    goodness: float | None = None
    """the monitored score at this step, greater is better; None where it was not measured"""
    lasting: bool = True
    """False: written because the run was stopped here, and dropped as soon as there is a newer one"""


def listed(folder: Path) -> dict[int, Path]:
    """The whole checkpoints in a folder, by step, oldest first."""
    if not folder.is_dir():
        return {}
    found = {int(match[1]): path for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))


def latest(folder: Path) -> Path | None:
    """The newest whole checkpoint, if there is one."""
    paths = listed(folder)
    return paths[max(paths)] if paths else None


def best(folder: Path, count: int) -> list[Path]:
    """The `count` checkpoints with the best monitored scores, oldest first; ties go to the earlier."""
    scored = {step: goodness for step, path in listed(folder).items() if (goodness := _goodness(path)) is not None}
    chosen = sorted(scored, key=lambda step: (-scored[step], step))[:count]
    return [folder / _name(step) for step in sorted(chosen)]


def load(path: Path) -> Checkpoint:
    """Read a checkpoint whole, onto the host; one that is damaged or holds what is no number is refused."""
    state = _read_state(path)
    model, training = (read_tensors(path / name) for name in ("model.safetensors", "training.safetensors"))
    if broken := not_finite([*model.items(), *training.items()]):
        raise ModelFolderError(f"{path}: expected finite numbers, found others in {broken!r}.")
    return Checkpoint(state["step"], model, training, state["state"], state["goodness"], state["lasting"])


def damaged(path: Path, error: Exception) -> ModelFolderError:
    """What to tell of a checkpoint that cannot be gone on from: why, and which earlier one can."""
    for step, earlier in reversed(listed(path.parent).items()):
        if step < int(path.name.removeprefix("step-")):
            try:
                load(earlier)
            except ModelFolderError:
                continue
            advice = f"remove {path} to go on from {earlier.name}"
            break
    else:
        advice = "there is no earlier one to go on from, begin anew in another folder"
    return ModelFolderError(f"The checkpoint {path.name} is damaged ({str(error).rstrip('.')}); {advice}.")


class Checkpoints:
    """Writes the checkpoints of one run and keeps the newest and the best of them."""

    def __init__(self, folder: Path, keep: int, keep_best: int = 0) -> None:
        self._folder = folder
        self._keep = keep
        self._keep_best = keep_best
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".writing-*"):  # of a run that was killed while writing
            shutil.rmtree(leftover, ignore_errors=True)
        for path in listed(folder).values():  # rather than when the next one is written
            try:
                _read_state(path)
            except ModelFolderError as error:
                raise ModelFolderError(f"{str(error).rstrip('.')}; remove {path} to go on without it.") from None

    def would_keep(self, goodness: float) -> bool:
        """Whether a checkpoint with this score would be among the best that are kept."""
        self.wait()
        scores = [score for path in best(self._folder, self._keep_best) if (score := _goodness(path)) is not None]
        return len(scores) < self._keep_best or (bool(scores) and goodness > min(scores))

    def save(self, checkpoint: Checkpoint) -> Path:
        """Begin writing a checkpoint; its tensors may change as soon as this returns. Waits for the one before."""
        self.wait()
        snapshot = replace(checkpoint, model=_copies(checkpoint.model), training=_copies(checkpoint.training))
        ready = _recorded(snapshot.model)
        self._writer = threading.Thread(target=self._write_guarded, args=(snapshot, ready), name="checkpoint")
        self._writer.start()
        return self._folder / _name(checkpoint.step)

    def wait(self) -> None:
        """Wait until all is on disk; an error in writing is raised here."""
        if self._writer:
            self._writer.join()
            self._writer = None
        if self._error:
            error, self._error = self._error, None
            if isinstance(error, LongstrideError):
                raise error
            raise WorkError(f"{self._folder}: a checkpoint could not be written: {error}.") from error

    def _write_guarded(self, checkpoint: Checkpoint, ready: _Ready) -> None:
        try:
            self._write(checkpoint, ready)
            self._prune()
        except BaseException as error:  # raised again by wait()
            self._error = error

    def _write(self, checkpoint: Checkpoint, ready: _Ready) -> None:
        final = self._folder / _name(checkpoint.step)
        state = {
            "format": FORMAT,
            "step": checkpoint.step,
            "goodness": checkpoint.goodness,
            "lasting": checkpoint.lasting,
            "state": checkpoint.state,
        }
        text = json.dumps(state, indent=1)
        if final.exists():
            # A run that was resumed here and has only validated since: weights and random states are the same.
            (final / "state.json.new").write_text(text, encoding="utf-8")
            os.replace(final / "state.json.new", final / "state.json")
            return
        model, training = _on_host(checkpoint.model, ready), _on_host(checkpoint.training, ready)
        if broken := not_finite([*model.items(), *training.items()]):
            raise WorkError(
                f"update {checkpoint.step}: expected finite weights, found others in {broken!r}; no checkpoint was "
                "written, earlier ones are as they were (a lower peak rate or clipping may help)."
            )
        writing = self._folder / f".writing-{checkpoint.step}-{os.getpid()}"
        writing.mkdir()
        try:
            write_tensors(model, writing / "model.safetensors")
            write_tensors(training, writing / "training.safetensors")
            (writing / "state.json").write_text(text, encoding="utf-8")
            os.rename(writing, final)
        except BaseException:
            shutil.rmtree(writing, ignore_errors=True)
            raise

    def _prune(self) -> None:
        paths = list(listed(self._folder).values())
        lasting = [path for path in paths if path == paths[-1] or _read_state(path)["lasting"]]
        newest = set(lasting[-self._keep :])
        good = set(best(self._folder, self._keep_best))
        for path in paths:
            if path in newest:
                continue
            if path in good:
                (path / "training.safetensors").unlink(missing_ok=True)  # nobody resumes from it; it is twice the model
                continue
            doomed = path.with_name(f".writing-{path.name}")  # a half-deleted checkpoint must not be listed either
            os.rename(path, doomed)
            shutil.rmtree(doomed)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _read_state(path: Path) -> dict[str, Any]:
    file = path / "state.json"
    try:
        state = read_json(file)
    except (OSError, ValueError) as error:
        raise ModelFolderError(
            f"{file}: expected a checkpoint's state, found none that can be read ({error})."
        ) from None
    found = state.get("format") if isinstance(state, dict) else None
    if found != FORMAT:
        raise ModelFolderError(f"{file}: expected checkpoint format {FORMAT}, found {found}.")
    if missing := {"step", "goodness", "lasting", "state"} - state.keys():
        raise ModelFolderError(f"{file}: expected the fields {sorted(missing)}, found none.")
    fits = (
        path.name == (_name(state["step"]) if isinstance(state["step"], int) else ""),
        state["goodness"] is None or isinstance(state["goodness"], int | float),
        isinstance(state["lasting"], bool),
        isinstance(state["state"], dict),
    )
    if not all(fits):
        raise ModelFolderError(f"{file}: expected the state of {path.name}, found fields of other kinds or another's.")
    return dict(state)


def _goodness(path: Path) -> float | None:
    value = _read_state(path)["goodness"]
    return None if value is None else float(value)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _recorded(tensors: Mapping[str, Tensor]) -> _Ready:
    """An event after the copies, where they were made on a GPU."""
    device = next((tensor.device for tensor in tensors.values() if tensor.is_cuda), None)
    if device is None:
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return device, event


def _on_host(tensors: Mapping[str, Tensor], ready: _Ready) -> dict[str, Tensor]:
    """The tensors on the host, brought over on a stream of their own so that training need not wait."""
    if ready is None:
        return {name: tensor.cpu() for name, tensor in tensors.items()}
    device, event = ready
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_event(event)
    with torch.cuda.stream(stream):
        return {name: tensor.cpu() for name, tensor in tensors.items()}


def average(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """The mean weights of checkpoint folders, summed in float64; what is not floating point is taken from the last."""
    files = [path / "model.safetensors" for path in checkpoints]
    if not files:
        raise WorkError("averaging expects at least one checkpoint, found none.")
    with ExitStack() as stack:
        try:
            opened = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
        except (OSError, SafetensorError) as error:
            raise ModelFolderError(f"averaging expects readable checkpoints ({error}).") from None
        names = list(opened[-1].keys())
        for file, other in zip(files, opened, strict=True):
            if set(other.keys()) != set(names):
                raise ModelFolderError(f"{file}: expected the same parameters as {files[-1]}, found others.")
        result: dict[str, Tensor] = {}
        for name in names:
            newest = opened[-1].get_tensor(name)
            if not newest.is_floating_point():
                result[name] = newest
                continue
            # Begun with a weight, not with zero: what was frozen comes out bit for bit, -0 included.
            total = opened[0].get_tensor(name).double()
            for other in opened[1:]:
                total += other.get_tensor(name)
            result[name] = (total / len(opened)).to(newest.dtype)
        return result
