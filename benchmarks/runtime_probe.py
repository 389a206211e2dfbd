"""How long a step takes on this GPU, eagerly and captured, and whether both give the same ids: a first look, not a
benchmark. A random model of the base size; under a minute and a half on an H200.

    python benchmarks/runtime_probe.py [--precision fp16] [--plain] [--without step,relu] [--layers 6]
    python benchmarks/runtime_probe.py --switches --batches 1 --widths 1,10 --decoders ''

Prints, per batch and step width: milliseconds an iteration (draft slots filled with padding), eager and captured, the
kernels that a captured one launches and how long capturing took; with --kernels also which, summed by name (without
overlap, or else the time that they wait for each other is theirs: --kernels --without overlap). With
--switches, what an iteration takes with all kernels of our own, without one of them, without any. Then exactness of
every verifying decoder against eager steps of the same shape and against greedy by its own steps, where a sentence's
time goes, and what recording cost in all. The last line is all of it as JSON. Eager steps have the kernels of
captured ones; all read the same weights.

Where a sentence's time goes: graphs are timed twice, one right after another, when launching one hides behind running
the one before, and each from an idle device to an idle device, as a sentence's are. What is left beside the latter is
the host's: Python, and copies between host and device.

The floor of an iteration is the decoder's weights over the memory's bandwidth, and kernels times a microsecond.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from longstride.contract import EOS, Decoder, Limits, Precision, Runner, Source
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.ops.cuda.table import NAMES as KERNELS
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, Greedy
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.systems.draft_verify.model import Drafter
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.verification.batch_state import BatchState
from longstride.verification.exactness import PaddingDrafter, SameShapeGreedy
from longstride.verification.session import DecodePlan, VerificationSession

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
    parser.add_argument("--plain", action="store_true", help="without kernels of our own")
    parser.add_argument("--without", default="", help=f"without some of them: {','.join(KERNELS)}")
    parser.add_argument("--switches", action="store_true", help="an iteration without each of them, one by one")
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)), help="slots of a step")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)), help="rows of a step")
    parser.add_argument("--decoders", default=",".join(DECODERS))
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=16000)
    parser.add_argument("--kernels", action="store_true", help="kernels of an iteration by name, with their times")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("runtime_probe expects a CUDA device, found none.")
    device = torch.device("cuda", 0)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "precision": options.precision,
        "told": [],
    }
    print(f"{found['device']}, PyTorch {found['torch']}, {options.precision}", flush=True)

    def tell(message: str) -> None:
        found["told"].append(message)
        print(message, flush=True)

    torch.manual_seed(0)
    parts = random_parts(options.width, options.layers, options.vocabulary)
    captured = partial(
        CudaGraphRunner,
        device,
        options.precision,
        fused=not options.plain,
        without=split(options.without),
        tell=tell,
    )
    runners: list[Runner] = [EagerRunner(device, options.precision), captured()]
    shapes = [(int(batch), int(width)) for batch in split(options.batches) for width in split(options.widths)]
    if options.switches:
        found["switches"] = probe_switches(parts["model"], device, options.precision, shapes)
    for part in parts.values():
        runners[1].place(part)  # all read the same weights
    print("\nAn iteration of the verification loop:")
    print("batch width kernels " + " ".join(f"{runner.name:>13} ms" for runner in runners) + "   captured in s")
    found["iterations"] = [probe_step(parts["model"], runners, *shape, options.kernels) for shape in shapes]
    print("\nExactness and whole sentences:", flush=True)
    names = split(options.decoders)
    found["decoders"] = [line for name in names for line in probe_decoder(name, parts, runners, options.vocabulary)]
    for runner in runners:
        if isinstance(runner, CudaGraphRunner):
            print(f"\n{runner.name}: {runner.statistics.describe()}")
    print(json.dumps(found))


def split(text: str) -> list[str]:
    """What stands between commas."""
    return [part for part in text.split(",") if part]


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
    return round((time.perf_counter() - begun) / REPEATS * 1000, 5)


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
    """One line per name, what takes longest in all first."""
    by_name: dict[str, list[float]] = {}
    for name, taken in found:
        by_name.setdefault(name, []).append(taken)
    total = sum(taken for _, taken in found)
    longest = sorted(by_name.items(), key=lambda entry: -sum(entry[1]))
    rows = [f"      {len(each):3} x {sum(each) / len(each):5.1f} us  {name[:90]}" for name, each in longest]
    return "\n".join([f"      {len(found)} kernels, {total:.0f} us without the gaps between them", *rows])


def choose_kernels(runner: Runner, runners: list[Runner], parts: Iterable[nn.Module]) -> None:
    """Those of the runner; eager steps have those of captured ones."""
    for part in parts:
        (runner if runner.records else runners[1]).place(part)


@torch.inference_mode()
def probe_step(model: Transformer, runners: list[Runner], batch: int, width: int, names: bool) -> dict[str, Any]:
    """One line of the first table; with the kernels' names, a list under it for every runner that captures."""
    times, captured, launched = {}, {}, {}
    for runner in runners:
        choose_kernels(runner, runners, [model])
        step = iteration_of(model, runner, batch, width)
        begun = time.perf_counter()
        step()
        torch.cuda.synchronize()
        captured[runner.name] = time.perf_counter() - begun
        if runner.records:
            launched[runner.name] = kernels(step)
        times[runner.name] = milliseconds(step)
    shown = " ".join(f"{one:16.3f}" for one in times.values())
    told = " ".join(f"{captured[name]:.2f}" for name in launched)
    print(f"{batch:5} {width:5} {len(launched[runners[1].name]):7} {shown}   {told}", flush=True)
    if names:
        for name, one in launched.items():
            print(f"    {name}:\n{listed(one)}", flush=True)
    counts = {name: len(one) for name, one in launched.items()}
    busy = {name: round(sum(taken for _, taken in one), 1) for name, one in launched.items()}
    return {"batch": batch, "width": width, "ms": times, "kernels": counts, "busy_us": busy}


def iteration_of(model: Transformer, runner: Runner, batch: int, width: int) -> Callable[[], Any]:
    """An iteration of a full table, to be repeated."""
    session = DecodePlan(model, runner, PaddingDrafter(width - 1), Limits(max_length=OUTPUT)).start(batch, SOURCE)
    session.admit(sentences(batch, model.options.vocabulary))
    return session.table.iteration(width - 1, width)


@torch.inference_mode()
def probe_switches(
    model: Transformer, device: torch.device, precision: Precision, shapes: list[tuple[int, int]]
) -> list[dict[str, Any]]:
    """What a captured iteration takes with all kernels of our own, without each of them, and without any."""
    print("\nAn iteration without some kernels of our own, captured:")
    print("batch width " + " ".join(f"{name:>14}" for name in ("all", *("- " + name for name in KERNELS), "none")))
    found = []
    for batch, width in shapes:
        times: dict[str, float] = {}
        for name in ("all", *KERNELS, "none"):
            left_out = [name] if name in KERNELS else []
            runner = CudaGraphRunner(device, precision, fused=name != "none", without=left_out, tell=print)
            step = iteration_of(runner.place(model), runner, batch, width)
            step()
            times[name] = milliseconds(step)
        print(f"{batch:5} {width:5} " + " ".join(f"{one:11.3f} ms" for one in times.values()), flush=True)
        found.append({"batch": batch, "width": width, "ms": times})
    return found


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


def probe_decoder(name: str, parts: dict[str, Any], runners: list[Runner], vocabulary: int) -> Iterator[dict[str, Any]]:
    """A sentence at a time and a table of 32: time each, and ids that differ from eager steps of the same shape."""
    limits = Limits(max_length=OUTPUT)
    eager = decoder_of(name, parts, runners[0])
    for rows, repeats in ((1, 8), (32, 2)):
        sources = [sentences(rows, vocabulary, seed) for seed in range(repeats)]
        choose_kernels(runners[0], runners, parts.values())
        expected = [eager.decode(source, limits).tokens for source in sources]
        for runner in runners:
            choose_kernels(runner, runners, parts.values())
            decoder = decoder_of(name, parts, runner)
            for source in sources:  # captured in the first; how long outputs are is learnt from all
                decoder.decode(source, limits)
            torch.cuda.synchronize()
            begun = time.perf_counter()
            found = [decoder.decode(source, limits).tokens for source in sources]
            torch.cuda.synchronize()
            each = (time.perf_counter() - begun) / repeats * 1000
            differ = differing(found, expected)
            line = f"{name:13} {runner.name:17} batch {rows:2}: {each:8.2f} ms; "
            line += f"{differ} of {rows * repeats} differ from eager steps"
            result: dict[str, Any] = {"decoder": name, "runner": runner.name, "batch": rows, "ms": each}
            result["differ_from_eager"] = differ
            if name != "beam" and runner is not runners[0]:
                twin = [SameShapeGreedy(decoder).decode(source, limits).tokens for source in sources]
                result["differ_from_same_steps"] = differing(found, twin)
                line += f", {result['differ_from_same_steps']} from greedy by its own steps"
            print(line, flush=True)
            if rows == 1 and name != "beam" and runner is not runners[0]:
                result["shares"] = shares(decoder, sources, limits, each)
                print(f"{'':13} {told(result['shares'])}", flush=True)
            yield result


@torch.inference_mode()
def shares(decoder: Decoder, sources: list[Source], limits: Limits, each: float) -> dict[str, float]:
    """Where a sentence's time goes on average: the encoder's graph, the iterations' graphs, the host between them."""
    iterations = sum(decoder.decode(source, limits).iterations for source in sources) / len(sources)
    host = milliseconds_of_host(decoder, sources[0], limits)
    session = decoder.start(1, limits, SOURCE)
    assert isinstance(session, VerificationSession)
    session.admit(sources[0])
    table = session.table
    entering = table._entering
    assert entering is not None
    iterate = table.iteration(table.drafter.block, table.drafter.block + 1)
    found = {"iterations": iterations, "encode": milliseconds(entering), "iteration": milliseconds(iterate)}
    found |= {"encode_apart": apart(entering)[1], "iteration_launch": apart(iterate)[0]}
    found |= {"iteration_apart": apart(iterate)[1], "look": apart(partial(look, table))[1], **host}
    launched = [name for name, _ in kernels(iterate)]
    found |= {"kernels": len(launched), "copies": sum(name.startswith("Mem") for name in launched)}
    found["beside"] = each - found["encode"] - iterations * found["iteration"]
    found["beside_apart"] = each - found["encode_apart"] - iterations * found["iteration_apart"]
    return {name: round(value, 4) for name, value in found.items()}


def told(found: dict[str, float]) -> str:
    """The shares in two lines."""
    each = 1000 * found["beside"] / found["iterations"]
    return (
        f"encode {found['encode']:.3f} ms, {found['iterations']:.1f} iterations of {found['iteration']:.3f} ms "
        f"({found['kernels']:.0f} kernels, {found['copies']:.0f} of them copies), "
        f"{found['beside']:.2f} ms beside them ({each:.0f} µs an iteration);\n{'':13} from idle to idle "
        f"{found['encode_apart']:.3f} and {found['iteration_apart']:.3f} ms, launched after "
        f"{found['iteration_launch']:.3f}, {found['beside_apart']:.2f} beside them; a look {found['look']:.3f}; "
        f"starts in {found['start']:.3f}, admits in {found['admit']:.3f} and closes in {found['close']:.3f} ms"
    )


def apart(function: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds until a run is launched, and until it is done, each on an idle device; medians."""
    launched, done = [], []
    for _ in range(3 + REPEATS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        function()
        launched.append(time.perf_counter() - begun)
        torch.cuda.synchronize()
        done.append(time.perf_counter() - begun)
    return median(launched) * 1000, median(done) * 1000


def look(table: BatchState) -> None:
    """How an iteration's numbers come to the host, without the iteration."""
    table.outputs.send()
    table.outputs.wait()


def milliseconds_of_host(decoder: Decoder, source: Source, limits: Limits) -> dict[str, float]:
    """How long the host takes to start a session, to admit a sentence (its graph is launched then) and to close it."""
    taken: dict[str, list[float]] = {"start": [], "admit": [], "close": []}
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        session = decoder.start(1, limits, source.longest)
        taken["start"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        session.admit(source)
        taken["admit"].append(time.perf_counter() - begun)
        while session.free == 0:
            session.advance()
            session.take_finished()
        begun = time.perf_counter()
        session.close()
        taken["close"].append(time.perf_counter() - begun)
    return {name: median(times) * 1000 for name, times in taken.items()}


def differing(ours: list[list[list[int]]], theirs: list[list[list[int]]]) -> int:
    """Sentences that are not the same."""
    pairs = zip((ids for table in ours for ids in table), (ids for table in theirs for ids in table), strict=True)
    return sum(one != other for one, other in pairs)


if __name__ == "__main__":
    main()
