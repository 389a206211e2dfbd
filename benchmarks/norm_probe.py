"""Our residual sums and norms in training against inductor's, on one GPU: right, how fast, what does training gain?

    python benchmarks/norm_probe.py                  # less than a minute on an H200, most of it compilation
    python benchmarks/norm_probe.py --no-training --walks    # other ways to share the rows among programs
    python benchmarks/norm_probe.py --smoke          # no GPU: does the script itself run?

Both passes have to move memory and little else: forward reads two tensors of 32,768 rows in bf16 and writes one,
backward reads three and writes two, 268 MB in all at width 512 and 56 us at the 4.8 TB/s of an H200. Times are sums of
kernels' times as the profiler has them, means over repeats, since a launch takes the host longer than the kernel runs;
backward is what both passes take less forward. The library's twin is the same arithmetic compiled by itself. Training
is that of benchmarks/attention_probe.py, with our attention in both runs. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable

import torch
from attention_probe import Place, shapes, trained_with
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.nn import fused_training
from longstride.nn.backends import allow_own_attention, allow_own_norms, avoid_planned_attention

WIDTHS = (512, 256)
DROPOUT, EPSILON = 0.2, 1e-5
WALKS = [(programs, stages) for stages in (1, 2, 3) for programs in (8, 12, 16, 24, 32)]
SEED = 3

Norm = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(x, block, weight, bias) -> norm(x + dropout(block))"""


def library(x: Tensor, block: Tensor, weight: Tensor, bias: Tensor, dropout: float = DROPOUT) -> Tensor:
    """PyTorch's, as nn/layers.py calls it."""
    total = x + F.dropout(block, dropout)
    return F.layer_norm(total, weight.shape, weight.to(x.dtype), bias.to(x.dtype), EPSILON)


def own(x: Tensor, block: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Ours, at the same place."""
    return fused_training.add_norm(x, block, weight, bias, DROPOUT, EPSILON)


def operands(rows: int, width: int, place: Place) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x and block in bf16, weight and bias in float32; all want gradients."""
    x, block = (torch.randn(rows, width, device=place.device).bfloat16().requires_grad_() for _ in range(2))
    # As parameters they have a width that compilers take for fixed, as in a model.
    weight, bias = (nn.Parameter(torch.rand(width, device=place.device) + 0.5) for _ in range(2))
    return x, block, weight, bias


# --- right? ----------------------------------------------------------------------------------------------------------


def seeded(dropout: float, device: torch.device) -> Norm:
    """Ours with a seed that stays, so that what is dropped can be looked at."""
    seed = torch.tensor([SEED], device=device) if dropout else None

    def norm(x: Tensor, block: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        made = torch.ops.longstride.dropout_add_norm(x, block, weight, bias, seed, dropout, EPSILON)
        normed: Tensor = made[0]
        return normed

    return norm


def correctness(place: Place) -> float:
    """Largest error of ours in units of the library's own, both against float32; far above 1 means wrong."""
    worst = 0.0
    for width in WIDTHS:
        for rows in (1, 7, 1000, place.budget + 3):
            for dropout in (0.0, DROPOUT):
                norm = seeded(dropout, place.device)
                low = operands(rows, width, place)
                ones = torch.ones_like(low[0])
                shown = norm(ones * 0, ones, torch.ones_like(low[2]), torch.zeros_like(low[2]))
                kept = (shown > 0).float() / (1 - dropout) if dropout else torch.ones_like(ones, dtype=torch.float32)
                grad = torch.randn(rows, width, device=place.device).bfloat16()

                def known(x: Tensor, block: Tensor, weight: Tensor, bias: Tensor, kept: Tensor = kept) -> Tensor:
                    return library(x, block * kept.to(block.dtype), weight, bias, 0.0)

                exact = results(known, tuple(leaf.detach().float().requires_grad_() for leaf in low), grad.float())
                theirs = results(known, low, grad)
                ours = results(norm, low, grad)
                for e, t, o in zip(exact, theirs, ours, strict=True):
                    ratio = float((o.float() - e).norm() / ((t.float() - e).norm() + 1e-3 * e.norm()))
                    worst = max(worst, ratio if math.isfinite(ratio) else math.inf)
    print(
        f"error against float32, ours / library's, at worst: {worst:.2f}   {'ok' if worst < 2 else 'WRONG'}", flush=True
    )
    return worst


def results(norm: Norm, given: tuple[Tensor, ...], grad: Tensor) -> list[Tensor]:
    """What comes out, and the four gradients."""
    x, block, weight, bias = given
    made = norm(x, block, weight, bias)
    return [made.detach(), *torch.autograd.grad(made, given, grad)]


# --- how fast is a call? ---------------------------------------------------------------------------------------------


def microseconds(call: Callable[[], object], repeats: int = 20) -> float:
    """Mean of what its kernels take on the device."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    return float(sum(event.self_device_time_total for event in profiler.key_averages()) / repeats)


def passes(norm: Norm, given: tuple[Tensor, Tensor, Tensor, Tensor], grad: Tensor) -> tuple[float, float]:
    """Microseconds of forward and of backward."""
    forward = microseconds(lambda: norm(*given))
    both = microseconds(lambda: torch.autograd.grad(norm(*given), given, grad))
    return forward, both - forward


def kernels(place: Place) -> list[dict[str, float]]:
    """One residual sum of a full batch, both passes, by width."""
    found = []
    print("width   forward us: ours library   backward us: ours library   ours GB/s: forward backward", flush=True)
    for width in WIDTHS:
        given = operands(place.budget, width, place)
        grad = torch.randn(place.budget, width, device=place.device).bfloat16()
        row: dict[str, float] = {"width": width}
        for name, norm in (("own", own), ("library", torch.compile(library, dynamic=True))):
            row[f"{name}_forward"], row[f"{name}_backward"] = passes(norm, given, grad)
        size = place.budget * width * 2
        row["forward_gb_per_s"] = 3 * size / row["own_forward"] / 1e3
        row["backward_gb_per_s"] = 5 * size / row["own_backward"] / 1e3
        found.append(row)
        print(
            f"{width:5} {row['own_forward']:18.0f} {row['library_forward']:7.0f} {row['own_backward']:20.0f} "
            f"{row['library_backward']:7.0f} {row['forward_gb_per_s']:20.0f} {row['backward_gb_per_s']:8.0f}",
            flush=True,
        )
    return found


def walks(place: Place) -> list[dict[str, float]]:
    """The same with other numbers of programs for each multiprocessor, and of rows under way to each."""
    from longstride.nn import fused_training_kernels as k

    found = []
    before = (k.FORWARD, k.BACKWARD)
    for width in WIDTHS:
        given = operands(place.budget, width, place)
        grad = torch.randn(place.budget, width, device=place.device).bfloat16()
        for programs, stages in WALKS:
            k.FORWARD = k.BACKWARD = k.Walk(programs, stages)
            forward, backward = passes(own, given, grad)
            found.append(
                {"width": width, "programs": programs, "stages": stages, "forward": forward, "backward": backward}
            )
            print(
                f"width {width}, {programs:2} programs, {stages} stages: {forward:4.0f} us forward, {backward:4.0f} "
                "backward",
                flush=True,
            )
    k.FORWARD, k.BACKWARD = before
    return found


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description="Our residual sums and norms in training against inductor's.")
    parser.add_argument("--no-library", action="store_true", help="Do not train with the library's norms as well.")
    parser.add_argument("--no-training", action="store_true", help="Do not train at all.")
    parser.add_argument("--walks", action="store_true", help="Time other ways to share the rows among programs.")
    parser.add_argument("--batches", type=int, default=40, help="Batches to train on.")
    parser.add_argument("--passes", type=int, default=2, help="Passes over the batches that are timed.")
    parser.add_argument("--smoke", action="store_true", help="A toy on the CPU, to see that the script runs.")
    asked = parser.parse_args()
    place = Place(torch.device("cpu" if asked.smoke else "cuda"), asked.smoke)
    avoid_planned_attention()
    allow_own_attention(True)
    record: dict[str, object] = {"torch": torch.__version__}
    if not asked.smoke:
        record["device"] = torch.cuda.get_device_name()
        record["error"] = correctness(place)
        record["kernels"] = kernels(place)
        if asked.walks:
            record["walks"] = walks(place)
    if not asked.no_training:
        groups = shapes(place, 4 if asked.smoke else asked.batches)
        record |= trained_with(place, groups, asked.passes, allow_own_norms, library=not asked.no_library)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
