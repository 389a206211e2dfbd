"""Measure the start of a new process until it has translated a sentence: imports, CUDA, weights, self tests of
kernels, kernels that are compiled, graphs that are captured, the first decode and the second.

    PYTHONPATH=src python3 benchmarks/startup.py [-m bundled] [--runtime auto] [--processes 2] [--no-command] ...

Each process is new. All of them share caches in a temporary folder (TRITON_CACHE_DIR, CUDA_CACHE_PATH,
LONGSTRIDE_CACHE), which is empty for the first one. Prints one JSON record per line:

- `phases`: one process, from the start of the interpreter to its exit. `phases` are seconds, one after the other;
  `spans` are parts of them by name: how often, seconds in all, and seconds without other spans inside them.
- `profile`: one process with warm caches under cProfile: the functions that took the longest, by their own seconds and
  by cumulative seconds.
- `command`: `longstride translate` as a person runs it, with caches of its own, where typer is installed.

On an H200 it takes about a minute and a half. Without a GPU it shows the road of the processor.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import importlib
import io
import json
import os
import pstats
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SENTENCE = "Good morning."
LONGER = (
    "The committee will vote on this report in March, and I hope that the Council will follow us, since all of those "
    "who were heard have agreed that it cannot wait any longer."
)
BEGUN = "STARTUP_BEGUN"
"""The environment variable that tells a process when it was started."""
SLOWEST = 40
"""Functions of a profile that are told."""
WRAPPED = (
    ("hash files", "longstride.model_folder", "file_sha256"),
    ("tokenizers", "longstride.model_folder", "ModelFolder.tokenizers"),
    ("load weights", "longstride.model_folder", "ModelFolder.load"),
    ("place weights", "longstride.contract.running", "Runner.place"),
    ("bind", "longstride.runtime.graph_runner", "GraphRunner.bound"),
)
"""Spans of every runtime: name, module, function."""
WRAPPED_CUDA = (
    ("self test: values", "longstride.ops.cuda.self_test", "_checked"),
    ("self test: overlap", "longstride.ops.cuda.self_test", "_overlapped"),
    ("record", "longstride.runtime.cuda_graph", "CudaGraphRunner.record"),
    ("warm up", "longstride.runtime.cuda_graph_recorder", "CudaRecorder.warm_up"),
    ("capture", "longstride.runtime.cuda_graph_recorder", "CudaRecorder._capture"),
    ("C compiler", "triton.runtime.build", "_build"),
    ("load kernel", "triton.compiler.compiler", "CompiledKernel._init_handles"),
    ("load CUDA utilities", "triton.backends.nvidia.driver", "CudaUtils.__init__"),
)
"""The same where kernels are Triton's."""


class Spans:
    """Seconds by name. Spans may lie within others; each thread has its own order of them."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._lock = threading.Lock()
        self._found: dict[str, list[float]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[list[str]]:
        """Time what happens within; the name may be changed until it ends."""
        open_spans = self._here.__dict__.setdefault("open", [])
        told, inside, begun = [name], [0.0], time.perf_counter()
        open_spans.append(inside)
        try:
            yield told
        finally:
            seconds = time.perf_counter() - begun
            open_spans.pop()
            if open_spans:
                open_spans[-1][0] += seconds
            with self._lock:
                entry = self._found.setdefault(told[0], [0, 0.0, 0.0])
                entry[0] += 1
                entry[1] += seconds
                entry[2] += seconds - inside[0]

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            with self.of(name):
                return function(*arguments, **named)

        return timed

    def wrap(self, name: str, module: str, place: str) -> None:
        """Time each call of a function or method from now on; one that is not there is left out."""
        *owners, attribute = place.split(".")
        try:
            owner = functools.reduce(getattr, owners, importlib.import_module(module))
            setattr(owner, attribute, self.around(name, getattr(owner, attribute)))
        except (ImportError, AttributeError) as error:
            print(f"startup: {name} is not timed: {error}", file=sys.stderr)

    def told(self) -> dict[str, dict[str, float]]:
        """By name, the most seconds first."""
        order = sorted(self._found.items(), key=lambda item: -item[1][2])
        return {
            name: {"count": int(count), "seconds": round(whole, 3), "own": round(own, 3)}
            for name, (count, whole, own) in order
        }


def wrap_triton(spans: Spans, compiled: list[str]) -> None:
    """Tell kernels that are compiled from those that are read from Triton's cache; name the former."""
    import triton.compiler
    from triton import knobs

    hits = threading.local()
    compilation: Any = knobs.compilation
    plain = triton.compiler.compile

    def listener(*_: Any, cache_hit: bool = False, **__: Any) -> None:
        hits.hit = cache_hit

    def compile_timed(src: Any, *arguments: Any, **named: Any) -> Any:
        hits.hit = False
        begun = time.perf_counter()
        with spans.of("compile kernel") as name:
            found = plain(src, *arguments, **named)
            if hits.hit:
                name[0] = "read kernel from cache"
            else:
                compiled.append(f"{src.name} {time.perf_counter() - begun:.2f} s")
        return found

    compilation.listener = listener
    # A kernel takes this name when it is first launched on a device.
    triton.compiler.compile = compile_timed


def child(model: str, runtime: str, profiled: bool) -> None:
    """One process: its phases, spans, counts and outputs, as JSON."""
    entered = time.time()
    begun = float(os.environ.get(BEGUN, entered))
    phases: dict[str, float] = {"interpreter": entered - begun}
    spans, compiled = Spans(), list[str]()
    profile = cProfile.Profile() if profiled else None

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        at = time.perf_counter()
        yield
        phases[name] = time.perf_counter() - at

    with phase("import torch"):  # as `longstride translate` does
        importlib.import_module("longstride.cli.quick_start").import_torch()
        import torch
    with phase("import longstride"):
        import longstride.translator
    cuda = torch.cuda.is_available()
    if cuda:
        with phase("CUDA"):
            torch.zeros(1, device="cuda").add_(1)
            torch.cuda.synchronize()
        if find_spec("triton"):
            with phase("import triton"):
                importlib.import_module("triton")
            wrap_triton(spans, compiled)
    for wrapped in (*WRAPPED, *(WRAPPED_CUDA if cuda else ())):
        if wrapped[1].startswith("longstride.") or find_spec("triton"):
            spans.wrap(*wrapped)
    if profile is not None:
        profile.enable()
    with phase("open"):
        translator = longstride.translator.load(model, runtime=runtime, tell=lambda told: print(told, file=sys.stderr))
    with phase("make decoder"):  # reads weights, and asks the runner for its kernels
        translator.lone_decoder()
    texts = []
    for name, sentence in (("first", SENTENCE), ("second", SENTENCE), ("longer", LONGER), ("longer again", LONGER)):
        with phase(f"{name} decode"):
            texts.append(translator.translate(sentence))
        if name == "first":
            phases["(until the first translation)"] = time.time() - begun
    if profile is not None:
        profile.disable()
    runner = translator.runner
    found = {
        "phases": {name: round(seconds, 3) for name, seconds in phases.items()},
        "spans": spans.told(),
        "compiled": compiled,
        "carried_out_by": runner.describe(),
        "report": runner.report(),
        "outputs": texts[::2],
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "ended": time.time(),
    }
    if profile is not None:
        found["slowest"] = {order: slowest(profile, order) for order in ("tottime", "cumtime")}
    print(json.dumps(found))


def slowest(profile: cProfile.Profile, order: str) -> list[str]:
    """Functions by their own seconds or by cumulative ones, a line each: calls, own, cumulative, where."""
    stats: Any = pstats.Stats(profile, stream=io.StringIO())
    stats.sort_stats(order)
    lines = []
    for function in stats.fcn_list[:SLOWEST]:
        _, calls, own, cumulative, _ = stats.stats[function]
        file, line, name = function
        lines.append(f"{calls} {own:.3f} {cumulative:.3f} {'/'.join(Path(file).parts[-3:])}:{line} {name}")
    return lines


def fresh_caches(folder: Path) -> dict[str, str]:
    """The environment with all caches in a folder."""
    places = {"TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "cuda", "LONGSTRIDE_CACHE": "longstride"}
    return {**os.environ, **{name: str(folder / place) for name, place in places.items()}}


def run_child(arguments: argparse.Namespace, environment: dict[str, str], profiled: bool) -> dict[str, Any]:
    """One process's record; where it failed, what it said."""
    command = [sys.executable, __file__, "--child", "-m", arguments.model, "--runtime", arguments.runtime]
    begun = time.time()
    done = subprocess.run(
        [*command, *(["--profiled"] if profiled else [])],
        env={**environment, BEGUN: repr(begun)},
        capture_output=True,
        text=True,
        check=False,
    )
    ended = time.time()
    said = done.stderr.strip().splitlines()
    if done.returncode != 0 or not done.stdout.strip():
        return {"failed": done.returncode, "said": said[-12:]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    found["phases"]["exit"] = round(ended - found.pop("ended"), 3)
    return {"wall": round(ended - begun, 3), **found, "said": said}


def run_command(arguments: argparse.Namespace, environment: dict[str, str]) -> dict[str, Any]:
    """`longstride translate` with one sentence at its standard input."""
    command = [sys.executable, "-m", "longstride", "translate", "-m", arguments.model, "--runtime", arguments.runtime]
    begun = time.time()
    done = subprocess.run(command, input=SENTENCE + "\n", env=environment, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines()
    return {"wall": round(time.time() - begun, 3), "exit": done.returncode, "output": done.stdout, "said": said[-4:]}


def main() -> None:
    """Run the processes, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-m", "--model", default="bundled")
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--processes", type=int, default=2, help="the first has empty caches, all others warm ones")
    parser.add_argument("--no-command", action="store_true", help="leave out the command `longstride translate`")
    parser.add_argument("--no-profile", action="store_true", help="leave out the process under cProfile")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--profiled", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.model, arguments.runtime, arguments.profiled)
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = fresh_caches(Path(folder, "phases"))
        for number in range(arguments.processes):
            caches = "warm" if number else "empty"
            found = run_child(arguments, environment, profiled=False)
            print(json.dumps({"record": "phases", "process": number + 1, "caches": caches, **found}), flush=True)
        if not arguments.no_profile:
            found = run_child(arguments, environment, profiled=True)
            print(json.dumps({"record": "profile", "caches": "warm", **found}), flush=True)
        if not arguments.no_command and find_spec("typer"):
            environment = fresh_caches(Path(folder, "command"))
            for caches in ("empty", "warm"):
                told = run_command(arguments, environment)
                print(json.dumps({"record": "command", "caches": caches, **told}), flush=True)


if __name__ == "__main__":
    main()
