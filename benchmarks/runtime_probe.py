"""How long a step takes on this GPU, eagerly and captured, and whether both give the same ids: a first look, not a
benchmark. A random model of the base size; under a minute and a half on an H200.

    python benchmarks/runtime_probe.py [--precision fp16] [--fused] [--layers 6] [--vocabulary 16000]
    python benchmarks/runtime_probe.py --compiled --batches 1 --widths 1,10 --decoders greedy,blockwise

Prints, per batch and step width: milliseconds an iteration (draft slots filled with padding), eager and captured, the
kernels it launches and how long capturing took; then the encoder's share, exactness of every verifying decoder against
eager steps of the same shape and against greedy by its own steps, where a sentence's time goes, and what recording cost
in all. The floor of an iteration is the decoder's weights over the memory's bandwidth, and kernels times a microsecond.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from longstride.contract import EOS, Decoder, Limits, Runner, Source
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, Greedy
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.systems.draft_verify.model import Drafter
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.verification.session import VerificationSession
from longstride.verification.twin import Idle, SameSteps

WIDTHS = (1, 2, 8, 10, 25)
BATCHES = (1, 32)
DECODERS = ("greedy", "blockwise", "draft-verify", "copy-verify", "beam")
SOURCE = 32
"""tokens of every source: a bucket, so that eager tables have the same shape as captured ones"""
OUTPUT = 40
REPEATS = 30


def main() -> None:
    """Probe and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", default="fp16", choices=["fp64", "fp32", "fp16", "bf16"])
    parser.add_argument("--compiled", action="store_true", help="compile too: a minute or so a shape, so ask for few")
    parser.add_argument("--fused", action="store_true", help="with kernels of our own; eager steps have them too")
    parser.add_argument("--least-step", type=int, default=1, help="slots that a step of one row has at least")
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)), help="slots of a step")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)), help="rows of a step")
    parser.add_argument("--decoders", default=",".join(DECODERS))
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=16000)
    parser.add_argument("--kernels", action="store_true", help="list the kernels of an iteration too, with their times")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("runtime_probe expects a CUDA device, found none.")
    device = torch.device("cuda", 0)
    print(f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}, {options.precision}", flush=True)
    torch.manual_seed(0)
    parts = random_parts(options.width, options.layers, options.vocabulary)
    runners: list[Runner] = [
        EagerRunner(device, options.precision),
        CudaGraphRunner(device, options.precision, fused=options.fused, least_step=options.least_step, tell=print),
    ]
    if options.compiled:
        runners.append(CudaGraphRunner(device, options.precision, compiled=True, tell=print))
    for part in parts.values():
        runners[1].place(part)  # all read the same weights
    print("\nAn iteration of the verification loop:")
    print("batch width kernels " + " ".join(f"{runner.name:>13} ms" for runner in runners) + "   captured in s")
    for batch in options.batches.split(","):
        for width in options.widths.split(","):
            probe_step(parts["model"], runners, int(batch), int(width), options.kernels)
    print("\nExactness and whole sentences:", flush=True)
    for name in options.decoders.split(","):
        probe_decoder(name, parts, runners, options.vocabulary)
    for runner in runners:
        if isinstance(runner, CudaGraphRunner):
            print(f"\n{runner.name}: {runner.statistics.describe()}")


def random_parts(width: int, layers: int, vocabulary: int) -> dict[str, Any]:
    """A model, eight heads and a drafter, none of them trained."""
    shape = {"width": width, "feed_forward": 4 * width, "heads": width // 64, "vocabulary": vocabulary}
    model = Transformer(TransformerOptions(**shape, encoder_layers=layers, decoder_layers=layers))  # type: ignore[arg-type]
    drafter = Drafter(DrafterOptions(**shape, encoder="shared", decoder_layers=layers))  # type: ignore[arg-type]
    return {"model": model, "heads": Heads(HeadsOptions(8, width)), "drafter": drafter}


def sentences(rows: int, vocabulary: int, seed: int = 0) -> Source:
    """Random ones of 8 to 32 tokens, in a rectangle of 32 columns."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(8, SOURCE, (rows,), generator=generator).tolist()
    words = [torch.randint(5, vocabulary, (length,), generator=generator).tolist() for length in lengths]
    return Source.of([[*line, EOS] for line in words], SOURCE)


def milliseconds(function: Callable[[], Any]) -> float:
    """Mean of some runs, from an idle device to an idle device."""
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(REPEATS):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / REPEATS * 1000


def kernels(function: Callable[[], Any]) -> list[tuple[str, float]]:
    """Name and microseconds of each that a run launches, in order."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        function()
        torch.cuda.synchronize()
    launched = [event for event in found.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    launched.sort(key=lambda event: event.time_range.start)
    return [(event.name, event.time_range.elapsed_us()) for event in launched]


def listed(found: list[tuple[str, float]]) -> str:
    """One line per kernel, in order; the same one again and again counts in one line."""
    lines: list[tuple[str, int, float]] = []
    for name, time_each in found:
        before = lines[-1] if lines and lines[-1][0] == name else None
        if before is not None:
            lines[-1] = (name, before[1] + 1, before[2] + time_each)
        else:
            lines.append((name, 1, time_each))
    total = sum(time_each for _, time_each in found)
    rows = [f"      {count:3} x {spent / count:6.1f} us  {name[:120]}" for name, count, spent in lines]
    return "\n".join([f"      {len(found)} kernels, {total:.0f} us without the gaps between them", *rows])


@torch.inference_mode()
def probe_step(model: Transformer, runners: list[Runner], batch: int, width: int, names: bool) -> None:
    """One line of the first table; with the kernels' names, a list under it for every runner."""
    limits = Limits(max_length=OUTPUT)
    times, captured, found = [], [], []
    for runner in runners:
        session = VerificationSession(model, runner, Idle(width - 1), batch, limits, SOURCE)
        session.admit(sentences(batch, model.options.vocabulary))
        step = partial(session.table.iterate, width - 1, width)
        begun = time.perf_counter()
        step()
        torch.cuda.synchronize()
        captured.append(time.perf_counter() - begun)
        if names or runner is runners[0]:
            found.append(kernels(step))
        times.append(milliseconds(step))
    shown = " ".join(f"{one:16.3f}" for one in times)
    told = " ".join(f"{one:.2f}" for one in captured[1:])
    print(f"{batch:5} {width:5} {len(found[0]):7} {shown}   {told}", flush=True)
    if names:
        for runner, one in zip(runners, found, strict=True):
            print(f"    {runner.name}:\n{listed(one)}", flush=True)


def decoder_of(name: str, parts: dict[str, Any], runner: Runner) -> Decoder:
    """One of the decoders, over the random parts."""
    model = parts["model"]
    if name == "beam":
        return Beam([model], runner)
    if name == "blockwise":
        return Blockwise(model, parts["heads"], runner)
    if name == "draft-verify":
        return DraftVerify(model, parts["drafter"], runner)
    return CopyVerify(model, runner) if name == "copy-verify" else Greedy(model, runner)


def probe_decoder(name: str, parts: dict[str, Any], runners: list[Runner], vocabulary: int) -> None:
    """A sentence at a time and a table of 32: time each, and ids that differ from eager steps of the same shape."""
    limits = Limits(max_length=OUTPUT)
    eager = decoder_of(name, parts, runners[0])
    for rows, repeats in ((1, 8), (32, 2)):
        sources = [sentences(rows, vocabulary, seed) for seed in range(repeats)]
        expected = [eager.decode(source, limits).tokens for source in sources]
        for runner in runners:
            decoder = decoder_of(name, parts, runner)
            decoder.decode(sources[0], limits)
            torch.cuda.synchronize()
            begun = time.perf_counter()
            found = [decoder.decode(source, limits).tokens for source in sources]
            torch.cuda.synchronize()
            each = (time.perf_counter() - begun) / repeats * 1000
            line = f"{name:13} {runner.name:13} batch {rows:2}: {each:8.2f} ms; "
            line += f"{differing(found, expected)} of {rows * repeats} differ from eager steps"
            if name != "beam" and runner is not runners[0]:
                twin = [SameSteps(decoder).decode(source, limits).tokens for source in sources]
                line += f", {differing(found, twin)} from greedy by its own steps"
            print(line, flush=True)
            if rows == 1 and name != "beam" and runner is not runners[0]:
                print(f"{'':13} {shares(decoder, sources, limits, each)}", flush=True)


@torch.inference_mode()
def shares(decoder: Decoder, sources: list[Source], limits: Limits, each: float) -> str:
    """Where a sentence's time goes on average: the encoder's graph, the iterations' graphs, the host between them."""
    iterations = sum(decoder.decode(source, limits).iterations for source in sources) / len(sources)
    session = decoder.start(1, limits, SOURCE)
    assert isinstance(session, VerificationSession)
    session.admit(sources[0])
    table = session.table
    entering = table._entering
    assert entering is not None
    enter = milliseconds(entering)
    iteration = milliseconds(partial(table.iterate, table.drafter.block, table.drafter.block + 1))
    host = each - enter - iterations * iteration
    return (
        f"encode {enter:.3f} ms, {iterations:.1f} iterations of {iteration:.3f} ms, "
        f"{host:.2f} ms beside them ({1000 * host / iterations:.0f} µs an iteration)"
    )


def differing(ours: list[list[list[int]]], theirs: list[list[list[int]]]) -> int:
    """Sentences that are not the same."""
    pairs = zip((ids for table in ours for ids in table), (ids for table in theirs for ids in table), strict=True)
    return sum(one != other for one, other in pairs)


if __name__ == "__main__":
    main()
