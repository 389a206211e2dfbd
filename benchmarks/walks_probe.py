"""What kernels of our own for a decoder step take by themselves, for other tiles than theirs: to choose tiles by.

    python benchmarks/walks_probe.py [--precision fp16] [--width 512]

Prints microseconds a call, from graphs of twenty calls, so that no launch is counted; what the library takes stands
above. The last line is all of it as JSON. One row, heads of 64; half a minute on an H200, compiling included.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract.running import DTYPES
from longstride.nn import decode_attention_kernels as attention
from longstride.nn import decode_product_kernels as products
from longstride.nn import fused_kernels, overlap

CALLS = 20
REPEATS = 20
STEPS = ((10, 1), (30, 1), (100, 1), (10, 10), (30, 26))
"""first slot, slots of the step"""
KEYS_AND_WARPS = ((16, 1), (32, 1), (32, 2), (32, 4), (64, 1), (64, 2), (64, 4), (64, 8), (128, 4), (128, 8))
STRIPES = (
    (16, 64, 8, 3),
    (16, 64, 4, 3),
    (16, 128, 4, 3),
    (16, 256, 2, 3),
    (16, 128, 8, 3),
    (16, 32, 16, 3),
    (8, 64, 8, 3),
    (8, 128, 4, 3),
    (8, 128, 8, 3),
    (32, 64, 8, 3),
)
"""outputs, inputs of a warp at a time, warps, stages"""
ROWS = (1, 10, 26)


@torch.inference_mode()
def main() -> None:
    """Probe and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", default="fp16", choices=["fp32", "fp16", "bf16"])
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("walks_probe expects a CUDA device, found none.")
    like = torch.empty(0, device="cuda", dtype=DTYPES[options.precision])
    found = {"device": torch.cuda.get_device_name(), "precision": options.precision}
    found |= {"attention": probe_attention(like, options.width), "products": probe_products(like, options.width)}
    found |= {"overlap": probe_overlap(like, options.width)}
    print(json.dumps(found))


def probe_attention(like: Tensor, width: int) -> list[dict[str, Any]]:
    """A causal step, its keys and values written."""
    print("Causal steps, us:\n keys x warps " + " ".join(f"{f'{start}+{step}':>8}" for start, step in STEPS))
    before, found = attention.WALK, []
    for keys, warps in KEYS_AND_WARPS:
        attention.WALK = attention.Walk(keys, warps)
        times = []
        for start, step in STEPS:
            packed = random(like, 1, step, 3 * width)
            past = random(like, 2, 1, width // 64, 160, 64)
            slots = torch.arange(start, start + step, device=like.device)[None]
            times.append(tried(partial(attention.extend, packed, slots, past[0], past[1])))
        found.append(shown(f"{keys:5} x {warps}", {"keys": keys, "warps": warps}, times))
    attention.WALK = before
    return found


def probe_products(like: Tensor, width: int) -> list[dict[str, Any]]:
    """Products of each shape that a layer has, by 1, 10 and 26 slots."""
    shapes = [(width, width), (width, 3 * width), (width, 4 * width), (4 * width, width)]
    cases = [(inputs, outputs, rows) for inputs, outputs in shapes for rows in ROWS]
    print("Products, us (inputs x outputs, slots):\n outputs, inputs of a warp, warps, stages")
    print(" " * 18 + " ".join(f"{f'{inputs}x{outputs},{rows}':>12}" for inputs, outputs, rows in cases))
    given = [
        (random(like, rows, inputs), random(like, outputs, inputs), random(like, outputs))
        for inputs, outputs, rows in cases
    ]
    found = [shown("the library", {"walk": "library"}, [tried(partial(F.linear, *one)) for one in given], 12)]
    times = [tried(partial(products.product, *one, False)) for one in given]
    found.append(shown("as they are", {"walk": "own"}, times, 12))
    for stripe in STRIPES:
        walk = products.Walk(*stripe)
        times = [tried(partial(products.product, *one, False, walk)) for one in given]
        names = dict(zip(("outputs", "share", "warps", "stages"), stripe, strict=True))
        found.append(shown(", ".join(map(str, stripe)), names, times, 12))
    return found


def probe_overlap(like: Tensor, width: int) -> list[dict[str, Any]]:
    """Each kernel after itself, a sum with its norm before a product, and a layer of all: as ever, and overlapping in
    either manner."""
    manners = {"as ever": None, "from the start": overlap.FIRST, "after the wait": overlap.WAITED}
    x, wide = random(like, 10, width), random(like, 10, 4 * width)
    square, up, down = random(like, width, width), random(like, 4 * width, width), random(like, width, 4 * width)
    norm, past = (random(like, width), random(like, width), 1e-5), random(like, 2, 1, width // 64, 160, 64)
    packing, slots = random(like, 3 * width, width), torch.arange(30, 40, device=like.device)[None]
    packed, source = random(like, 1, 10, 3 * width), random(like, 2, 1, width // 64, 32, 64)
    given = source[0], source[1], like.new_zeros(1, 1, 1, 32)

    def product(x: Tensor, weight: Tensor, relu: bool = False) -> Tensor:
        return products.product(x, weight, None, relu)

    def norm_and_product() -> Tensor:
        return product(fused_kernels.add_norm(x, x, *norm), square)

    def layer() -> Tensor:
        mixed = attention.extend(product(x, packing)[None], slots, past[0], past[1])[0]
        y = fused_kernels.add_norm(x, product(mixed, square), *norm)
        mixed = attention.read(product(y, square)[None], *given, False)[0]
        y = fused_kernels.add_norm(y, product(mixed, square), *norm)
        return fused_kernels.add_norm(y, product(product(y, up, True), down), *norm)

    calls: dict[str, Callable[[], Any]] = {
        "product": partial(product, x, square),
        "up": partial(product, x, up, True),
        "down": partial(product, wide, down),
        "step": partial(attention.extend, packed, slots, past[0], past[1]),
        "norm": partial(fused_kernels.add_norm, x, x, *norm),
        "norm, prod.": norm_and_product,
        "source": partial(attention.read, x[None], *given, False),
        "layer": layer,
    }
    print("Starting while the kernel before ends, 10 slots, us:\n" + " " * 18, end="")
    print(" ".join(f"{name:>12}" for name in calls))
    found = []
    for name, manner in manners.items():
        overlap.switch(manner is not None, manner or overlap.FIRST)
        times = [tried(call) for call in calls.values()]
        found.append(shown(name, {}, times, 12) | {"manner": name, "calls": list(calls)})
    overlap.switch(False)
    return found


def random(like: Tensor, *shape: int) -> Tensor:
    """Of this shape, small enough for products to stay in range."""
    return torch.randn(*shape, device=like.device).mul_(0.1).to(like.dtype)


def tried(function: Callable[[], Any]) -> float | None:
    """Microseconds a call; None where it cannot be compiled or captured."""
    try:
        return microseconds(function)
    except Exception as error:
        print((str(error) or type(error).__name__).splitlines()[0][:100])
        return None


def microseconds(function: Callable[[], Any]) -> float:
    """Of one call among many, one after another in a graph."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            function()
    graph.replay()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(REPEATS):
        graph.replay()
    torch.cuda.synchronize()
    return round((time.perf_counter() - begun) / (REPEATS * CALLS) * 1e6, 3)


def shown(name: str, known: dict[str, Any], times: list[float | None], wide: int = 8) -> dict[str, Any]:
    """One line, printed, and as it goes into the JSON."""
    cells = " ".join(f"{'-' if one is None else format(one, '.2f'):>{wide}}" for one in times)
    print(f" {name:<{12 if wide == 8 else 17}}{cells}", flush=True)
    return {**known, "us": times}


if __name__ == "__main__":
    main()
