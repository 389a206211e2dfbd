"""What a drafter saves by projecting on kept ids: milliseconds of one draft with the runtime native, random weights.

    python benchmarks/kept_ids.py [--precision int8] [--threads 1] [--repeats 40]

A linked drafter of the base width with two layers that reads the verifier's encoder drafts for one sentence, from
tokens to ids: all ids of vocabularies of several sizes, then the 8,192 kept ones of each. Ways take turns, and the
least times are told, so that other programs on the machine count little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from longstride.runtime.native.runner import NativeRunner
from longstride.systems.draft_verify import passes, programs
from longstride.systems.draft_verify.model import Drafter
from longstride.systems.draft_verify.options import DrafterOptions

SIZES = (8_192, 32_000, 58_101, 256_206)
KEPT = 8_192
BLOCK, SOURCE, COLUMNS, COMMITTED = 10, 32, 80, 20


def main() -> None:
    """Print one line per vocabulary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=["fp32", "int8"], default="int8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=40)
    given = parser.parse_args()
    runner = NativeRunner(given.precision, given.threads)
    print(runner.describe())
    print("vocabulary   all ids, ms   8,192 kept, ms   times")
    for size in SIZES:
        ways = [drafting(runner, size, None)] + ([drafting(runner, size, KEPT)] if size > KEPT else [])
        least = [float("inf")] * len(ways)
        for _ in range(given.repeats):
            for number, draft in enumerate(ways):
                start = time.perf_counter()
                draft()
                least[number] = min(least[number], 1000 * (time.perf_counter() - start))
        rest = f"{least[1]:>16.2f}{least[0] / least[1]:>8.1f}" if len(least) > 1 else ""
        print(f"{size:>10,}{least[0]:>14.2f}{rest}")


def drafting(runner: NativeRunner, vocabulary: int, kept: int | None) -> Callable[[], Any]:
    """What drafts once, bound to its tensors."""
    torch.manual_seed(0)
    options = DrafterOptions(
        vocabulary, kept=kept, block=BLOCK, encoder="shared", decoder_layers=2, link=64, soft_copy=False, longest=128
    )
    drafter = Drafter(options).eval().requires_grad_(False)
    run = passes.of(drafter)

    def function(tokens: Tensor, length: Tensor, *rest: Any) -> Tensor:
        own = drafter.own(tokens)
        found = run(own, length, *rest)
        return drafter.verifiers(drafter.followed(found.hidden, own, length, found.newest))

    program = programs.traced_pass("draft-ids", drafter, function, {"ids": (torch.int64, ("rows", "block"))})
    memory = drafter.encode_source(
        torch.zeros(1, SOURCE, dtype=torch.int64), torch.tensor([SOURCE]), torch.randn(1, SOURCE, options.width)
    )
    tokens, length = torch.full((1, COLUMNS), 7), torch.tensor([COMMITTED])
    slots = drafter.mask_slots(tokens[:, :SOURCE], torch.tensor([SOURCE]), COLUMNS)
    cache = drafter.new_cache(1, COLUMNS + BLOCK)
    return runner.bound(program, tokens, length, 5, BLOCK, slots, cache, memory)


if __name__ == "__main__":
    main()
