"""longstride doctor: what this machine can do, tried out: runtimes, whether they are right, how fast, what to install.

A runtime is right where lossless decoders give greedy's own output and fp32 gives what PyTorch gives. Exit code 1 where
something that should work here does not.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from longstride.cli.console import Bar, out
from longstride.cli.options import Model, Threads, cache_folder, model_path, open_model
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.contract import Precision
    from longstride.translator import Translator

WAYS: tuple[tuple[str, Precision], ...] = (
    ("eager", "fp32"),
    ("native", "fp32"),
    ("native", "int8"),
    ("onnx", "fp32"),
    ("onnx", "int8"),
    ("cuda-graph", "fp16"),
)
"""What is tried, PyTorch itself first: the others are held to it."""
LINES = (
    "Good morning!",
    "If it rains tomorrow, we will stay at home and read.",
    "The committee will vote on this report in March, and I hope that the Council will follow us.",
)
"""The second is timed."""
PATIENCE, TIMES = 2.0, 3
"""It is timed again until so many seconds are gone or it was so often: busy cores take seconds for a sentence."""
SIDE_BY_SIDE = (1, 8, 32, 128)
"""Batch sizes that --prepare decodes."""
LOSSLESS = ("draft-verify", "blockwise")
OK, ABSENT, BROKEN = "works", "not here", "broken"


@dataclass
class Finding:
    """What came of trying one runtime in one precision."""

    runtime: str
    precision: Precision
    state: str = OK
    told: str = ""
    """why it is not here, or what is wrong with it"""
    greedy: float | None = None
    """milliseconds for a sentence"""
    lossless: float | None = None
    """likewise, by the model's own lossless decoder"""


def doctor(
    model: Model = BUNDLED,
    runtime: Annotated[
        list[str] | None, typer.Option(help="Try this runtime alone, beside eager; may be given several times.")
    ] = None,
    threads: Threads = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Test nothing. Decode with every decoder of the model, so that its kernels are compiled and cached "
            "before the first real request.",
        ),
    ] = False,
) -> None:
    """Say what this machine can do: runtimes, whether they are right, how fast, what to install."""
    from longstride.contract import LongstrideError, OptionError
    from longstride.model_folder import ModelFolder

    if prepare:
        if runtime and len(runtime) > 1:
            raise OptionError(f"--prepare expects one --runtime at most, found {len(runtime)}.")
        _prepare(model, runtime[0] if runtime else "auto", threads)
        return

    there = dict.fromkeys(name for name, _ in WAYS)
    for name in runtime or ():
        if name not in there:
            raise OptionError(f"--runtime expects {', '.join(there)}, found {name!r}.")
    ModelFolder(model_path(model))  # what is none is no fault of a runtime's
    ways = [way for way in WAYS if not runtime or way[0] in ("eager", *runtime)]
    findings: list[Finding] = []
    expected: list[str] | None = None
    each, done = 2 * (len(LINES) + 1), 0
    with Bar("trying runtimes", len(ways) * each, lines=False) as bar:
        for number, (runtime_name, precision) in enumerate(ways):
            note = f"{runtime_name} {precision}"
            bar.to(done := number * each, note=note)

            def step(note: str = note) -> None:
                nonlocal done
                bar.to(done := done + 1, note=note)

            try:
                found, outputs = _tried(model, runtime_name, precision, threads, expected, step)
            except LongstrideError:
                raise  # the model itself: there is nothing to try anything with
            except Exception as error:  # whatever a library of somebody else's throws: that is what is looked for
                told = f"{type(error).__name__}: {error}"
                found, outputs = Finding(runtime_name, precision, BROKEN, told), None
            findings.append(found)
            expected = expected or outputs
    _show(findings)
    for advice in (*_machine(), *_advice(findings)):
        out.print(advice, markup=False)
    if any(finding.state == BROKEN for finding in findings):
        sys.exit(1)


def _prepare(model: str, runtime: str, threads: int | None) -> None:
    """Decode by each decoder at each batch size: compiled kernels stay in Triton's cache on disk."""
    translator = open_model(model, runtime, "auto", "auto", threads=threads)
    begun, names = time.perf_counter(), list(translator.decoders)
    with Bar("preparing", len(names) * len(SIDE_BY_SIDE)) as bar:
        for number, name in enumerate(names):
            for place, size in enumerate(SIDE_BY_SIDE):
                translator.translate([LINES[n % len(LINES)] for n in range(size)], name, batch=size)
                bar.to(number * len(SIDE_BY_SIDE) + place + 1, note=f"{name}, {size} at a time")
    seconds = time.perf_counter() - begun
    out.print(f"Prepared on {translator.runner.describe()} in {seconds:.1f} s: {', '.join(names)}.", markup=False)


def _tried(
    model: str,
    runtime: str,
    precision: Precision,
    threads: int | None,
    expected: list[str] | None,
    step: Callable[[], None],
) -> tuple[Finding, list[str] | None]:
    """What came of it, and greedy's outputs; `step` hears of each sentence."""
    from longstride.translator import load

    heard: list[str] = []
    device = "cpu" if runtime == "eager" else "auto"
    translator = load(
        model_path(model), runtime=runtime, precision=precision, device=device, threads=threads, tell=heard.append
    )
    found = Finding(runtime, precision)
    if translator.runner.name != runtime:
        # What runs in its place is of no interest here.
        told = re.split("[:.] the model runs", heard[0], flags=re.IGNORECASE)[0] if heard else "another took its place"
        found.state, found.told = ABSENT, f"{told}."
        return found, None
    found.greedy, outputs = _timed(translator, "greedy", step)
    lossless = [name for name in LOSSLESS if name in translator.decoders][:1]
    if precision == "fp32" and expected is not None and outputs != expected:
        found.state, found.told = BROKEN, "its greedy output is not PyTorch's."
    for name in lossless:
        taken, others = _timed(translator, name, step)
        found.lossless = taken
        if others != outputs:
            found.state, found.told = BROKEN, f"the output of {name} is not greedy's."
    if runtime == "cuda-graph":
        from longstride.ops.cuda.self_test import conformance

        runner = translator.runner
        wrong = [f"{name} ({why})" for name, why in conformance(runner.device, runner.dtype).items() if why]
        if wrong:
            found.state, found.told = BROKEN, f"kernels do not do what they should: {', '.join(wrong)}."
    if found.state == OK and heard:
        found.told = heard[0]
    return found, outputs


def _timed(translator: Translator, decoder: str, step: Callable[[], None]) -> tuple[float, list[str]]:
    """The least milliseconds for one sentence, after a first time that counts for nothing; the outputs of all."""
    outputs, times = [], list[float]()
    for line in LINES:
        outputs.append(translator.translate(line, decoder, batch=1))
        step()
    while len(times) < TIMES and sum(times) < PATIENCE:
        begun = time.perf_counter()
        translator.translate(LINES[1], decoder, batch=1)
        times.append(time.perf_counter() - begun)
    step()
    return 1e3 * min(times), outputs


def _show(findings: list[Finding]) -> None:
    table = Table(box=None, padding=(0, 3, 0, 0))
    for name in ("runtime", "precision", "", "greedy", "lossless"):
        table.add_column(name, justify="right" if name in ("greedy", "lossless") else "left")
    colour = {OK: "green", ABSENT: "yellow", BROKEN: "red"}
    for one in findings:
        times = (f"{taken:.1f} ms" if taken is not None else "" for taken in (one.greedy, one.lossless))
        table.add_row(one.runtime, one.precision, f"[{colour[one.state]}]{one.state}[/]", *times)
    out.print(table)
    out.print(f"Milliseconds for a sentence: {LINES[1]}", style="dim", markup=False)
    for one in findings:
        if one.told:
            out.print(f"{one.runtime} {one.precision}: {one.told}", markup=False)


def _machine() -> list[str]:
    """What there is, in sentences."""
    import torch

    from longstride.bench.machine import describe_machine
    from longstride.contract.running import available
    from longstride.runtime.processor import this_processor

    facts = describe_machine()
    free = available(torch.device("cpu"))
    lines = [
        f"Processor: {facts.cpu}, {facts.threads} threads, {this_processor().describe()}.",
        f"Memory: {free / 2**30:.1f} GiB can be had." if free is not None else "Memory: not known.",
        f"Python {facts.python}, PyTorch {facts.torch}, {facts.system}.",
        f"Measured draft lengths (adaptive=true) are kept in {cache_folder() or 'no folder'}.",
    ]
    lines += [f"GPU: {torch.cuda.get_device_name(one)}." for one in range(torch.cuda.device_count())]
    return lines


def _advice(findings: list[Finding]) -> list[str]:
    """What to install, and what to use."""
    import torch

    from longstride.runtime.native.building import LIBRARIES
    from longstride.runtime.native.library import missed
    from longstride.runtime.processor import this_processor

    states = {(one.runtime, one.precision): one.state for one in findings}
    lines = []
    if states.get(("native", "fp32")) == ABSENT:
        lines.append("To go several times faster here, have the runtime native built: see above.")
    if states.get(("native", "fp32")) == OK and (told := missed(LIBRARIES, this_processor())):
        lines.append(told)
    if states.get(("onnx", "fp32")) == ABSENT:
        lines.append("For the runtime onnx: pip install 'longstride[onnx]'.")
    if torch.version.cuda is not None and not torch.cuda.is_available():
        lines.append("This PyTorch is built for CUDA and there is no GPU: its CPU build saves gigabytes of disk.")
    working = [one for one in findings if one.state == OK and one.greedy is not None]
    if working:
        best = min(working, key=lambda one: min(one.greedy or 0.0, one.lossless or float("inf")))
        lines.append(f"Fastest here: --runtime {best.runtime} --precision {best.precision}.")
    return lines
