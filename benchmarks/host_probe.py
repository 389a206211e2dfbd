"""What the host does beside captured steps: microseconds of Python and calls of PyTorch's, a sentence and an iteration.

    python benchmarks/host_probe.py [--decoders greedy,blockwise,draft-verify] [--profile] [--ahead] [--others 8]
    python benchmarks/host_probe.py --rows 64 --decoders 'greedy,blockwise,blockwise adaptive'

Needs no GPU. A tiny model is decoded by the CUDA runner, one sentence at a time or several, with a recorder whose
recordings do nothing but count, and end the sentence after so many iterations. What is left is what lies between two
launches, and before the first and after the last. From short and long sentences follow what an iteration takes and what
a sentence does beside. Calls are counted as PyTorch dispatches them, views included; on a CUDA device each that is not
a view costs some microseconds more than here. What only a CUDA device asks for (copies between host and device, events,
launches) is not seen here. `--others` tables of other shapes wait beside the one in use, as after a test set.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longstride.contract import EOS, Decoder, Limits, Runner, Source
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.cuda_graph_recorder import Recorded
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.systems.draft_verify.model import Drafter
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.verification.table import Table

DECODERS = ("greedy", "blockwise", "blockwise adaptive", "draft-verify", "draft-verify adaptive", "copy-verify")
WORDS = 20
SHORT, LONG = 2, 42
"""iterations of a sentence"""
REPEATS = 400
VIEWS = ("slice", "select", "view", "expand", "unsqueeze", "squeeze", "detach", "alias", "as_strided", "t")


class CountingRecorder:
    """Records nothing: entering opens the first row of a table, iterating closes it after so many times."""

    def __init__(self) -> None:
        self.iterations = SHORT
        self._left = 0

    def warm_up(self, function: Callable[[], Any]) -> None:
        """There is nothing to set up."""

    def record(self, function: Callable[[], Any], state: Sequence[Tensor]) -> Recorded:
        """Run it once for its result, put back what it wrote, and count from then on."""
        before = [tensor.clone() for tensor in state]
        result = function()
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        table: Table = function.func.__self__  # type: ignore[attr-defined]  # a partial of one of its methods
        done, length = table.outputs.done.numpy(), table.outputs.length.numpy()

        def enter() -> None:
            self._left = self.iterations
            done[:], length[:] = False, 1

        def iterate() -> None:
            self._left -= 1
            done[:] = self._left <= 0

        return Recorded(enter if result is None else iterate, result, 0)


class Calls(TorchDispatchMode):
    """Counts what PyTorch is asked for, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count it and do it."""
        self.names[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def decoder_of(name: str, runner: Runner) -> Decoder:
    """One of the decoders, over a model of no size."""
    shape: dict[str, Any] = {"width": 8, "feed_forward": 8, "heads": 1, "vocabulary": 32}
    model = runner.place(Transformer(TransformerOptions(**shape, encoder_layers=1, decoder_layers=1)))
    name, _, adaptive = name.partition(" ")
    if name == "blockwise":
        options = BlockwiseOptions(adaptive=bool(adaptive))
        return Blockwise(model, runner.place(Heads(HeadsOptions(8, 8))), runner, options)
    if name == "draft-verify":
        drafter = Drafter(DrafterOptions(**shape, encoder="shared", decoder_layers=1, block=10))
        return DraftVerify(model, runner.place(drafter), runner, DraftVerifyOptions(adaptive=bool(adaptive)))
    return CopyVerify(model, runner) if name == "copy-verify" else Greedy(model, runner)


def median_microseconds(function: Callable[[], Any]) -> float:
    """The median of some runs, without collections of garbage in between."""
    taken = []
    gc.collect()
    gc.disable()
    for _ in range(REPEATS):
        begun = time.perf_counter_ns()
        function()
        taken.append(time.perf_counter_ns() - begun)
    gc.enable()
    return sorted(taken)[len(taken) // 2] / 1000


class Bench:
    """A decoder over a runner that counts, ready to decode a sentence of so many iterations."""

    def __init__(self, name: str, ahead: bool = False, others: int = 0, rows: int = 1) -> None:
        self._recorder = CountingRecorder()
        runner = CudaGraphRunner("cpu", "fp32", ahead=ahead, recorder=self._recorder)
        self._decoder = decoder_of(name, runner)
        self._source, self._limits = Source.of([[*range(5, 5 + WORDS), EOS]] * rows, 32), Limits()
        for extra in range(others):
            decoder_of("greedy", runner).decode(self._source, Limits(max_length=100 + extra))
        for _ in range(20):
            self.decode()

    def decode(self, iterations: int = SHORT) -> None:
        """A sentence."""
        self._recorder.iterations = iterations
        self._decoder.decode(self._source, self._limits)

    def calls(self) -> tuple[dict[str, float], dict[str, float]]:
        """By name: of a sentence beside its iterations, and of an iteration."""
        counted = {}
        for iterations in (SHORT, LONG):
            with Calls() as calls:
                self.decode(iterations)
            counted[iterations] = calls.names
        steps = LONG - SHORT
        each = {call: (counted[LONG][call] - counted[SHORT][call]) / steps for call in counted[LONG]}
        beside = {call: counted[SHORT][call] - SHORT * each.get(call, 0) for call in counted[SHORT]}
        return {call: some for call, some in beside.items() if some}, {
            call: some for call, some in each.items() if some
        }

    def microseconds(self) -> tuple[float, float]:
        """The same in time."""
        short, long = (median_microseconds(partial(self.decode, iterations)) for iterations in (SHORT, LONG))
        iteration = (long - short) / (LONG - SHORT)
        return round(short - SHORT * iteration, 1), round(iteration, 2)


def probe(name: str, ahead: bool, others: int, profiled: bool, rows: int = 1) -> dict[str, Any]:
    """What a sentence and an iteration take with one decoder."""
    bench = Bench(name, ahead, others, rows)
    sentence, iteration = bench.microseconds()
    of_sentence, of_iteration = bench.calls()
    if profiled:
        with cProfile.Profile() as profile:
            for _ in range(REPEATS):
                bench.decode()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    return {
        "decoder": name,
        "ahead": ahead,
        "sentence_us": sentence,
        "iteration_us": iteration,
        "sentence_calls": of_sentence,
        "iteration_calls": of_iteration,
    }


def shown(calls: dict[str, float]) -> str:
    """So many calls, of which so many do more than look at a tensor in another way."""
    work = {call: times for call, times in calls.items() if call not in VIEWS}
    names = ", ".join(f"{call} {times:g}" for call, times in sorted(work.items(), key=lambda entry: -entry[1]))
    return f"{sum(calls.values()):g} calls, {sum(work.values()):g} no views" + (f" ({names})" if names else "")


def main() -> None:
    """Probe and print; the last line is all of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decoders", default=",".join(DECODERS))
    parser.add_argument("--profile", action="store_true", help="functions by the time they take")
    parser.add_argument("--ahead", action="store_true", help="launch before looking")
    parser.add_argument("--others", type=int, default=4, help="tables that wait beside the one in use")
    parser.add_argument("--rows", type=int, default=1, help="sentences at a time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wanted = options.decoders.split(",")
    found = [probe(name, options.ahead, options.others, options.profile, options.rows) for name in wanted]
    for one in found:
        print(f"{one['decoder']:21} a sentence  {one['sentence_us']:7.1f} us, {shown(one['sentence_calls'])}")
        print(f"{'':21} an iteration {one['iteration_us']:6.2f} us, {shown(one['iteration_calls'])}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
