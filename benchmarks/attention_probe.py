"""Our attention for short sequences against PyTorch's, on one GPU: is it right, how fast, what does training gain?

    python benchmarks/attention_probe.py             # about 90 s on an H200, most of it compilation
    python benchmarks/attention_probe.py --no-library --warps    # other numbers of warps per tile; no second training
    python benchmarks/attention_probe.py --smoke     # no GPU: does the script itself run?

Training is that of the English-German base model: the project's own update (bf16, layers compiled, clipped, fused Adam)
over 60 batches of up to 32,768 padded tokens whose lengths are drawn like those of the corpus, one in eight with padded
sources. Every shape is seen once before the clock starts, and the time of that first pass is shown too: what it takes
beyond a second pass is the price of new shapes. cuDNN's attention is left out, as in every run of the project. Kernel
times are means over repeats of one layer's call at those shapes. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import PAD, Batch
from longstride.nn import short_attention
from longstride.nn.backends import allow_own_attention, avoid_planned_attention
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.systems.autoregressive.objective import AutoregressiveObjective, AutoregressiveObjectiveOptions
from longstride.training.compilation import compiled
from longstride.training.distributed import alone
from longstride.training.options import TrainingOptions
from longstride.training.prefetch import Group
from longstride.training.update import Updater

BUDGET = 32768
HEADS, HEAD = 8, 64
LENGTHS = (14, 30, 44, 60, 100)
WARPS = {16: (1, 2), 32: (1, 2, 4), 64: (4, 8), 128: (4, 8)}


@dataclass(frozen=True)
class Place:
    """Where and how large: the real thing on a GPU, or a toy that shows that the script runs."""

    device: torch.device
    smoke: bool

    @property
    def budget(self) -> int:
        """Padded tokens per batch."""
        return 256 if self.smoke else BUDGET

    def wait(self) -> None:
        """Until the device has done all."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


# --- right? ----------------------------------------------------------------------------------------------------------


def library(packed: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """PyTorch's attention as nn/attention.py calls it: packed [rows, length, 3 * width] -> [rows, length, width]"""
    rows, length, width = packed.shape
    q, k, v = packed.view(rows, length, 3, HEADS, width // (3 * HEADS)).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    return mixed.transpose(1, 2).reshape(rows, length, width // 3)


def own(packed: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Ours, at the same place."""
    return short_attention.self_attention(packed, HEADS, mask, causal, 0.0)


def correctness(place: Place) -> float:
    """Largest error of ours in units of the library's own, both against float32; far above 1 means wrong."""
    worst = 0.0
    for length in (*LENGTHS, 1, 128):
        for causal, masked in ((True, ""), (False, ""), (False, "keys"), (False, "each")):
            packed = torch.randn(16, length, 3 * HEADS * HEAD, device=place.device).bfloat16()
            grad = torch.randn(16, length, HEADS * HEAD, device=place.device).bfloat16()
            seen = torch.arange(length, device=place.device) < torch.randint(
                1, length + 1, (16, 1), device=place.device
            )
            each = (torch.rand(16, 1, length, length, device=place.device) < 0.5) | seen[:, None, None]
            mask = {"": None, "keys": seen[:, None, None], "each": each}[masked]
            exact = _with_gradient(library, packed.float(), grad.float(), mask, causal)
            theirs = _with_gradient(library, packed, grad, mask, causal)
            ours = _with_gradient(own, packed, grad, mask, causal)
            for e, t, o in zip(exact, theirs, ours, strict=True):
                ratio = float((o.float() - e).norm() / ((t.float() - e).norm() + 1e-4 * e.norm()))
                worst = max(worst, ratio if math.isfinite(ratio) else math.inf)
    print(
        f"error against float32, ours / library's, at worst: {worst:.2f}   {'ok' if worst < 2 else 'WRONG'}", flush=True
    )
    return worst


def _with_gradient(
    attend: Callable[[Tensor, Tensor | None, bool], Tensor],
    packed: Tensor,
    grad: Tensor,
    mask: Tensor | None,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    leaf = packed.detach().clone().requires_grad_()
    mixed = attend(leaf, mask, causal)
    mixed.backward(grad)
    assert leaf.grad is not None
    return mixed.detach(), leaf.grad


# --- how fast is a call? ---------------------------------------------------------------------------------------------


def microseconds(call: Callable[[], object], place: Place, repeats: int = 30) -> float:
    """Mean time on the device, launches queued ahead."""
    for _ in range(3):
        call()
    place.wait()
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    place.wait()
    return (time.perf_counter() - began) / repeats * 1e6


def kernels(place: Place) -> list[dict[str, float]]:
    """One self-attention of a full batch, both passes, by length."""
    found = []
    print("length   forward us: ours library   backward us: ours library   ours GB/s", flush=True)
    for length in LENGTHS:
        packed = torch.randn(place.budget // length, length, 3 * HEADS * HEAD, device=place.device)
        packed = packed.bfloat16().requires_grad_()
        row: dict[str, float] = {"length": length}
        for name, attend in (("own", own), ("library", library)):
            with torch.no_grad():
                row[f"{name}_forward"] = microseconds(lambda: attend(packed, None, True), place)  # noqa: B023
            mixed = attend(packed, None, True)
            grad = torch.randn_like(mixed)
            row[f"{name}_backward"] = microseconds(
                lambda: torch.autograd.grad(mixed, packed, grad, retain_graph=True),  # noqa: B023
                place,
            )
        moved = packed.numel() * 2 * (4 / 3 + 7 / 3)  # q k v in, mixed out; q k v and a gradient in, three out
        row["own_gb_per_s"] = moved / (row["own_forward"] + row["own_backward"]) / 1e3
        found.append(row)
        print(
            f"{length:6} {row['own_forward']:18.0f} {row['library_forward']:7.0f} {row['own_backward']:20.0f} "
            f"{row['library_backward']:7.0f} {row['own_gb_per_s']:11.0f}",
            flush=True,
        )
    return found


def warps(place: Place) -> list[dict[str, float]]:
    """The same with other numbers of warps per tile."""
    from longstride.nn import short_attention_kernels as k

    found = []
    for length in LENGTHS:
        tile = k.tile_for(length, length)
        packed = torch.randn(place.budget // length, length, 3 * HEADS * HEAD, device=place.device)
        packed = packed.bfloat16().requires_grad_()
        before = k._WARPS[tile]
        for count in WARPS[tile]:
            k._WARPS[tile] = count
            with torch.no_grad():
                forward = microseconds(lambda: own(packed, None, True), place)  # noqa: B023
            mixed = own(packed, None, True)
            grad = torch.randn_like(mixed)
            backward = microseconds(lambda: torch.autograd.grad(mixed, packed, grad, retain_graph=True), place)  # noqa: B023
            found.append({"length": length, "warps": count, "forward": forward, "backward": backward})
            print(f"length {length:3}, {count} warps: {forward:5.0f} us forward, {backward:5.0f} backward", flush=True)
        k._WARPS[tile] = before
    return found


# --- what does training gain? ----------------------------------------------------------------------------------------


def shapes(place: Place, count: int) -> list[Group]:
    """Updates of one batch each, in a fixed random order."""
    rng = torch.Generator().manual_seed(1)
    objective = AutoregressiveObjective(AutoregressiveObjectiveOptions())
    groups = []
    for number in range(count):
        # Half of all tokens stand in sentences of more than 35 (log-normal, as measured by tokens).
        length = math.exp(
            3.55 + 0.48 * math.sqrt(2) * float(torch.erfinv(torch.tensor(2 * (number + 0.5) / count - 1)))
        )
        source = min(128, max(4, round(length)))
        target = min(128, max(4, round(source * (0.9 + 0.5 * float(torch.rand((), generator=rng))))))
        rows = max(1, place.budget // max(source, target))
        vocabulary = 200 if place.smoke else 16000
        lengths = torch.randint(max(1, target - 2), target + 1, (rows,), generator=rng)
        lengths[0] = target
        sources = torch.full((rows,), source)
        if number % 8 == 7:
            sources[1:] -= torch.randint(0, 3, (rows - 1,), generator=rng)
        ids = [torch.randint(5, vocabulary, (rows, size), generator=rng) for size in (source, target)]
        for tokens, real in zip(ids, (sources, lengths), strict=True):
            tokens[torch.arange(tokens.shape[1]) >= real[:, None]] = PAD
        prepared = objective.prepare(Batch(*ids, sources, lengths, torch.arange(rows)), rng)
        prepared = prepared.pinned() if place.device.type == "cuda" else prepared
        groups.append(Group([prepared], 0, number + 1, number == count - 1))
    order = torch.randperm(count, generator=rng).tolist()
    return [groups[number] for number in order]


def training(place: Place, groups: list[Group], passes: int, profile: bool) -> dict[str, float]:
    """Seconds of the first pass, and milliseconds per update and tokens per second of the later ones."""
    torch.manual_seed(1)
    torch.compiler.reset()
    small = {"width": 64, "feed_forward": 64, "heads": 1, "encoder_layers": 1, "decoder_layers": 1}
    size = {"vocabulary": 200, **small} if place.smoke else {"vocabulary": 16000}
    model = Transformer(TransformerOptions(dropout=0.2, **size)).to(place.device).train()
    objective = AutoregressiveObjective(AutoregressiveObjectiveOptions())
    precision = "fp32" if place.smoke else "bf16"
    options = TrainingOptions(steps=1, clip=1.0, precision=precision, compile="none" if place.smoke else "layers")
    updater = Updater(model, compiled(model, objective, options.compile), options, alone(place.device))

    def run() -> float:
        place.wait()
        began = time.perf_counter()
        for group in groups:
            updater.apply(group, 1e-4)
        place.wait()
        return time.perf_counter() - began

    first = run()
    seconds = [run() for _ in range(passes)]
    tokens = sum(group.tokens for group in groups)
    began = time.perf_counter()
    updater.apply(groups[0], 1e-4)
    queued = time.perf_counter() - began
    if profile:
        show_profile(place, updater, groups[:8])
    return {
        "first_pass_s": first,
        "ms_per_update": min(seconds) / len(groups) * 1e3,
        "host_ms_per_update": queued * 1e3,
        "tokens_per_second": tokens / min(seconds),
    }


def trained_with(
    place: Place, groups: list[Group], passes: int, allow: Callable[[bool], None], library: bool
) -> dict[str, dict[str, float]]:
    """Training with our kernels and, if asked for, the library's, as `allow` switches them."""
    found = {}
    for name in ("own", "library")[: 2 if library else 1]:
        allow(name == "own")
        found[name] = result = training(place, groups, passes, profile=name == "own")
        print(
            f"{name}: {result['ms_per_update']:.1f} ms per update (host {result['host_ms_per_update']:.1f}), "
            f"{result['tokens_per_second'] / 1e6:.3f} M target tokens/s; first pass {result['first_pass_s']:.0f} s",
            flush=True,
        )
    return found


def show_profile(place: Place, updater: Updater, groups: list[Group]) -> None:
    """Where the device's time goes, by kernel."""
    kind = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kind.CUDA if place.device.type == "cuda" else kind.CPU]) as profiler:
        for group in groups:
            updater.apply(group, 1e-4)
        place.wait()
    spent = [(event.self_device_time_total / len(groups), event) for event in profiler.key_averages()]
    total = sum(time for time, _ in spent)
    print(f"on the device {total / 1e3:.1f} ms per update; the longest kernels (ms, calls, name):", flush=True)
    for time_each, event in sorted(spent, key=lambda pair: -pair[0])[:25]:
        print(f"  {time_each / 1e3:6.2f} {event.count / len(groups):5.0f}  {event.key[:110]}")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description="Our attention for short sequences against PyTorch's.")
    parser.add_argument("--no-library", action="store_true", help="Do not train with PyTorch's attention as well.")
    parser.add_argument("--no-training", action="store_true", help="Do not train at all.")
    parser.add_argument("--warps", action="store_true", help="Time other numbers of warps per tile.")
    parser.add_argument("--passes", type=int, default=3, help="Passes over the batches that are timed.")
    parser.add_argument("--smoke", action="store_true", help="A toy on the CPU, to see that the script runs.")
    asked = parser.parse_args()
    place = Place(torch.device("cpu" if asked.smoke else "cuda"), asked.smoke)
    avoid_planned_attention()
    record: dict[str, object] = {"torch": torch.__version__}
    if not asked.smoke:
        record["device"] = torch.cuda.get_device_name()
        record["error"] = correctness(place)
        record["kernels"] = kernels(place)
        if asked.warps:
            record["warps"] = warps(place)
    if not asked.no_training:
        groups = shapes(place, 4 if asked.smoke else 60)
        record |= trained_with(place, groups, asked.passes, allow_own_attention, library=not asked.no_library)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
