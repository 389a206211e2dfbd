"""What one sentence costs by a captured lattice on this GPU, stage by stage: a first look, not a benchmark.

    python benchmarks/lattice_probe.py [--precision fp16] [--candidates 64] [--words 29] [--switches] [--kernels]
        [--batches 1,8,32,64,128] [--logits 24,25,26]

A random model of the base size and random tables, in which every key has as many words as are kept: candidates take as
long as they ever do. Prints milliseconds of whole sentences by the clock, from ids to ids, a sentence at a time; of the
captured pass alone; and of its stages, each captured by itself, with the kernels that each launches. With --switches,
the pass without each kernel of our own; with --kernels, which there are, by name (best with --without overlap). Before
that, outputs are compared with those of fp32 without kernels of our own: how many of some random sentences' scores
agree. With --batches, batches of sentences of all lengths: sentences a second, graphs and their memory, each batch size
with a runner of its own, and how many graphs the last round still captured, which should be none. With --logits, the
pass with so many logits at once, each given as a power of two. The last line is all of it as JSON. `--device cpu` tries
the probe itself, at small sizes, without graphs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from longstride.contract import EOS, PAD, Limits, Runner, Source
from longstride.nn.fused import KERNELS
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression, Window
from longstride.systems.lattice import scoring
from longstride.systems.lattice.counts import CountOptions
from longstride.systems.lattice.decoder import LatticeDecoder, with_tables
from longstride.systems.lattice.model import Scorer, ScorerOptions
from longstride.systems.lattice.pipeline import LatticeOptions, Pipeline, Sentences, packed
from longstride.systems.lattice.recorded import shape_of
from longstride.systems.lattice.tables import Tables, TablesOptions

REPEATS = 50
CHECKED = 20
SMALL: dict[str, Any] = {"width": 64, "feed_forward": 128, "heads": 2, "encoder_layers": 2, "vocabulary": 200}
BASE: dict[str, Any] = {"width": 512, "feed_forward": 2048, "heads": 8, "encoder_layers": 6, "vocabulary": 16000}


def main() -> None:
    """Probe and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="fp16", choices=["fp32", "fp16", "bf16"])
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--words", type=int, default=29, help="of a source")
    parser.add_argument("--without", default="", help=f"without some kernels of our own: {','.join(KERNELS)}")
    parser.add_argument("--switches", action="store_true", help="the pass without each of them, one by one")
    parser.add_argument("--kernels", action="store_true", help="kernels of the pass by name, with their times")
    parser.add_argument("--batches", default="", help="of so many sentences: throughput and memory")
    parser.add_argument("--logits", default="", help="the pass with 2 to the power of so many logits at once")
    options = parser.parse_args()
    cuda = options.device != "cpu"
    if cuda and not torch.cuda.is_available():
        raise SystemExit("lattice_probe expects a CUDA device, found none; --device cpu tries the probe itself.")
    sizes = BASE if cuda else SMALL
    found: dict[str, Any] = {"precision": options.precision, "candidates": options.candidates, "told": []}
    found["device"] = torch.cuda.get_device_name() if cuda else "cpu"
    print(f"{found['device']}, {options.precision}, {options.candidates} candidates, {options.words} words", flush=True)

    def captured(without: list[str]) -> Runner:
        if not cuda:
            return EagerRunner("cpu", "fp32")
        return CudaGraphRunner("cuda:0", options.precision, without=without, tell=found["told"].append)

    left_out = [name for name in options.without.split(",") if name]
    runner = captured(left_out)
    ours = random_decoder(runner, sizes, options.candidates)
    source = random_source(options.words, sizes["vocabulary"], 0)
    found["agreeing"] = agreeing(ours, sizes, options, cuda)
    found["sentence_ms"] = 1000 * clocked(lambda: ours.decode(source, Limits()), cuda)
    found["stages"] = stages(ours, runner, source, cuda)
    for name, (spent, kernels) in found["stages"].items():
        print(f"{name:>12} {spent:8.3f} ms {kernels:5} kernels")
    print(f"{'sentence':>12} {found['sentence_ms']:8.3f} ms by the clock; {found['agreeing']} scores agree with fp32")
    if options.kernels and cuda:
        found["kernels"] = by_name(ours, runner, source)
        for name, times, spent in found["kernels"]:
            print(f"{spent:9.1f} us {times:4} x {name[:90]}")
    if options.switches:
        found["switches"] = {}
        for name in ("source-self", "source", "product", "embed", "norm", "candidates", "edges", "paths", "overlap"):
            other = captured([*left_out, name])
            decoder = random_decoder(other, sizes, options.candidates)
            spent = stages(decoder, other, source, cuda)["whole pass"][0]
            found["switches"][name] = spent
            print(f"without {name:>12} {spent:8.3f} ms", flush=True)
    found["logits"] = {}
    for power in _numbers(options.logits):
        before, scoring.AT_MOST = scoring.AT_MOST, 1 << power
        other = captured(left_out)
        spent = stages(random_decoder(other, sizes, options.candidates), other, source, cuda)
        scoring.AT_MOST = before
        found["logits"][power] = {name: spent[name][0] for name in ("score", "whole pass")}
        print(
            f"2^{power} logits at once: score {spent['score'][0]:.3f} ms, pass {spent['whole pass'][0]:.3f}", flush=True
        )
    found["batches"] = {}
    for size in _numbers(options.batches):
        other = captured(left_out)
        found["batches"][size] = spent_on = batches(
            random_decoder(other, sizes, options.candidates), other, size, sizes
        )
        print(f"batches of {size}: {spent_on}", flush=True)
    for message in found["told"]:
        print(message)
    print(json.dumps(found))


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def batches(decoder: LatticeDecoder, runner: Runner, size: int, sizes: dict[str, Any]) -> dict[str, float]:
    """Sentences a second of a few rounds through a hundred or more of 5 to 60 words, as they come."""
    count = max(2 * size, 96)
    lines = [random_source(5 + seed * 17 % 56, sizes["vocabulary"], seed).ids[0].tolist() for seed in range(count)]
    groups = [Source.of(lines[first : first + size]) for first in range(0, count, size)]
    best, captured, report = float("inf"), 0, {}
    for _ in range(4):
        recorded = runner.statistics.recorded if isinstance(runner, CudaGraphRunner) else 0
        begun = time.perf_counter()
        for group in groups:
            decoder.decode(group)  # waits for its outputs
        best = min(best, time.perf_counter() - begun)
        if isinstance(runner, CudaGraphRunner):
            held = runner.statistics
            captured = held.recorded - recorded
            report = {"graphs": held.graphs, "graph_mib": held.graph_bytes >> 20, "seconds_capturing": held.seconds}
    return {"sentences_per_second": count / best, "captured_in_last_round": captured, **report}


def random_decoder(runner: Runner, sizes: dict[str, Any], k: int) -> LatticeDecoder:
    """The same weights and tables each time."""
    torch.manual_seed(0)
    vocabulary, counted = sizes["vocabulary"], CountOptions()
    model = runner.place(Scorer(ScorerOptions(**sizes, decoder_layers=1)))
    entries = 100 * counted.keep
    lengths = LengthRegression(1.05, 1.0)
    tables = Tables(TablesOptions(vocabulary, vocabulary, "", "", entries, 128, 128, counted, lengths))
    tables.first.random_(0, entries)
    tables.size.fill_(counted.keep)
    tables.words.random_(5, vocabulary)
    tables.counts.random_(1, 100)
    tables.total.fill_(100 * counted.keep)
    tables.places.random_(1, 100)
    return with_tables(model, runner.place(tables), runner, LatticeOptions(candidates=k))


def random_source(words: int, vocabulary: int, seed: int) -> Source:
    """One sentence."""
    ids = torch.randint(5, vocabulary, (words,), generator=torch.Generator().manual_seed(seed))
    return Source.of([[*ids.tolist(), EOS]])


def agreeing(ours: LatticeDecoder, sizes: dict[str, Any], options: argparse.Namespace, cuda: bool) -> str:
    """Of random sentences, how many have the score that they have without kernels of our own, nearly."""
    exact = random_decoder(EagerRunner("cuda:0" if cuda else "cpu", "fp32"), sizes, options.candidates)
    sources = [random_source(5 + seed, sizes["vocabulary"], seed) for seed in range(CHECKED)]
    pairs = [(ours.decode(one).scores[0], exact.decode(one).scores[0]) for one in sources]
    return f"{sum(abs(a - b) <= 0.005 * abs(b) for a, b in pairs)} of {CHECKED}"


def clocked(function: Callable[[], Any], cuda: bool) -> float:
    """Seconds by the clock, the median of some runs after the first few."""
    spent = []
    for _ in range(REPEATS + 5):
        begun = time.perf_counter()
        function()
        if cuda:
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - begun)
    return median(spent[5:])


@torch.inference_mode()
def stages(decoder: LatticeDecoder, runner: Runner, source: Source, cuda: bool) -> dict[str, tuple[float, int]]:
    """Milliseconds and kernels of each stage, from an idle device to an idle device, and of all of them as one."""
    pipeline = decoder.pipeline(Limits())
    sentences = as_recorded(pipeline, runner, source)
    encoded = pipeline.encode(sentences)
    candidates = pipeline.candidates(sentences, encoded)
    steps: dict[str, Callable[[], Any]] = {
        "encode": lambda: pipeline.encode(sentences),
        "candidates": lambda: pipeline.candidates(sentences, encoded),
    }
    if pipeline.at_once:
        scores = pipeline.edges(encoded, candidates)
        steps["score"] = lambda: pipeline.edges(encoded, candidates)
        steps["search"] = lambda: pipeline.found(sentences, candidates, scores)
    else:
        lattice = pipeline.score(sentences, encoded, candidates)
        steps["score"] = lambda: pipeline.score(sentences, encoded, candidates)
        steps["search"] = lambda: packed(lattice, pipeline.search(lattice))
    steps["whole pass"] = lambda: pipeline.outputs(sentences, pipeline.encode(sentences))
    found = {}
    for name, step in steps.items():
        replay = runner.record(name, step, [])
        found[name] = (1000 * clocked(replay, cuda), kernels_of(replay) if cuda else 0)
    return found


def as_recorded(pipeline: Pipeline, runner: Runner, source: Source) -> Sentences:
    """A sentence in the shape that recordings have: padded to a rung, with that rung's columns."""
    shape = shape_of(pipeline, runner, source)
    ids = torch.nn.functional.pad(source.ids, (0, shape.width - source.longest), value=PAD).to(runner.device)
    lengths, shortest, longest = shape.bounds.to(runner.device).unbind(dim=1)
    return Sentences(ids, lengths, True, Window(shortest, longest), shape.columns)


def kernels_of(function: Callable[[], Any]) -> int:
    """How many kernels it launches."""
    return sum(times for _, times, _ in profiled(function))


def by_name(decoder: LatticeDecoder, runner: Runner, source: Source) -> list[tuple[str, int, float]]:
    """(name, how often, microseconds in all) of a whole pass, the longest first"""
    pipeline = decoder.pipeline(Limits())
    with torch.inference_mode():
        sentences = as_recorded(pipeline, runner, source)

        def whole() -> Tensor:
            return pipeline.outputs(sentences, pipeline.encode(sentences))

        return profiled(runner.record("profiled", whole, []))


def profiled(function: Callable[[], Any]) -> list[tuple[str, int, float]]:
    """The device's own work in one call."""
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        function()
        torch.cuda.synchronize()
    launched = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    by_name: dict[str, list[float]] = {}
    for event in launched:
        by_name.setdefault(event.name, []).append(event.time_range.elapsed_us())
    lines = [(name, len(times), sum(times)) for name, times in by_name.items()]
    return sorted(lines, key=lambda line: -line[2])


if __name__ == "__main__":
    main()
