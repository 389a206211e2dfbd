"""What a captured iteration is made of: its operators, by name, for decoders of a tiny model. Needs no GPU.

    TRITON_INTERPRET=1 python benchmarks/step_operators.py [--decoders greedy,interleaved] [--plain] [--layers 2]

What a CUDA graph would have as a node counts: kernels of our own by their name, PyTorch's operators by theirs, and no
views and no fresh memory. With `--plain` nothing is of our own, and neither Triton nor its interpreter is needed.
Nothing is timed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longstride.contract import EOS, Decoder, Limits, Runner, Source
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.ops.cuda.table import inference_table
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.cuda_graph_recorder import Recorded
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.systems.draft_verify.model import Drafter
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
from longstride.systems.interleaved.model import Interleaving
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.verification.acceptance import Rule

WIDTH, VOCABULARY = 64, 96
NOTHING = {"empty", "empty_like", "new_empty", "empty_strided", "detach", "alias", "dropout"}
"""Memory alone, and what does nothing outside of training."""
INTERLEAVED: dict[str, tuple[dict[str, Any], int]] = {
    "interleaved": ({"h": 2, "c": 1, "start": "learned"}, 1),
    "interleaved-symbol": ({"h": 2, "c": 1}, 1),
    "interleaved-sa": ({"h": 2, "c": 2, "start": "learned"}, 1),
    "interleaved-linked": ({"h": 2, "c": 2, "start": "learned", "link": 16, "vocabulary": VOCABULARY}, 1),
    "interleaved-independent": ({"h": 2, "c": 1, "independent": True}, 1),
    "interleaved-beam": ({"h": 2, "c": 1, "start": "learned"}, 4),
}
"""by name: what the model is, and how many hypotheses"""
DRAFTED: dict[str, dict[str, Any]] = {
    "draft-verify": {},
    "draft-verify-top": {"accept": Rule("top", beta=5, gap=3.0)},
}
"""by name: options of draft-and-verify with a linked drafter of two layers"""
HEADS: dict[str, dict[str, Any]] = {
    "blockwise": {},
    "blockwise-learned": {"first": "learned"},
    "blockwise-unlinked": {"link": 0},
}
"""by name: what prediction heads are, beside linked"""
DECODERS = ("greedy", "beam", *INTERLEAVED, *DRAFTED, *HEADS)


class Operators(TorchDispatchMode):
    """Counts them while it is on; kernels of our own are counted by whoever launches them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.launching = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count it, unless it is a view or memory alone, and do it."""
        found = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        writes = any(said.alias_info is not None and said.alias_info.is_write for said in func._schema.arguments)
        # What converts is called a view, since it may have nothing to do.
        copied = name == "to" and found.dtype != args[0].dtype
        if not self.launching and name not in NOTHING and (writes or copied or not func.is_view):
            self.names[name] += 1
        return found


class CountingRecorder:
    """Counts what is recorded, which it then runs as it is."""

    def __init__(self) -> None:
        self.entering: Counter[str] = Counter()
        self.iterating: Counter[str] = Counter()
        self.operators: Operators | None = None

    def warm_up(self, function: Callable[[], Any]) -> None:
        """Kernels are compiled, tables made."""
        function()

    def record(self, function: Callable[[], Any], state: Sequence[Tensor]) -> Recorded:
        """One run, counted and undone."""
        before = [tensor.clone() for tensor in state]
        self.operators = operators = Operators()
        with operators:
            result = function()
        self.operators = None
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        if result is None:
            self.entering = operators.names
        else:
            self.iterating = operators.names

        @torch.inference_mode()
        def again() -> None:
            function()

        return Recorded(again, result, 0)

    def launched(self, name: str, launch: Callable[[], Any]) -> Any:
        """A kernel of our own."""
        operators = self.operators
        if operators is None:
            return launch()
        operators.names[f"own {name}"] += 1
        operators.launching = True
        try:
            return launch()
        finally:
            operators.launching = False


def decoder_of(name: str, runner: Runner, layers: int) -> Decoder:
    """One of the decoders over a tiny model."""
    shape = TransformerOptions(
        vocabulary=VOCABULARY, width=WIDTH, feed_forward=128, heads=1, encoder_layers=1, decoder_layers=layers
    )
    model = runner.place(Transformer(shape))
    if name in INTERLEAVED:
        variant, width = INTERLEAVED[name]
        interleaving = runner.place(Interleaving(InterleavingOptions(WIDTH, **variant)))
        return Interleaved(model, interleaving, runner, InterleavedOptions(width=width))
    if name in DRAFTED:
        kind = DrafterOptions(
            vocabulary=VOCABULARY,
            block=10,
            width=WIDTH,
            feed_forward=128,
            heads=1,
            encoder="shared",
            decoder_layers=2,
            link=16,
            positions="sinusoidal",
            add_positions="first",
            activation="relu",
        )
        drafter = runner.place(Drafter(kind))
        return DraftVerify(model, drafter, runner, DraftVerifyOptions(**DRAFTED[name]))
    if name in HEADS:
        shape_of_heads = {"k": 8, "feed_forward": 64, "link": 16, "vocabulary": VOCABULARY, **HEADS[name]}
        heads = runner.place(Heads(HeadsOptions(width=WIDTH, **shape_of_heads)))
        return Blockwise(model, heads, runner)
    return Beam([model], runner, BeamOptions(width=4)) if name == "beam" else Greedy(model, runner)


def counted(name: str, layers: int, own: bool) -> CountingRecorder:
    """An iteration and an entrance of a decoder, one sentence at a time."""
    torch.manual_seed(0)
    recorder = CountingRecorder()
    runner = CudaGraphRunner("cpu", "fp32", recorder=recorder)
    # As where the quick check has found nothing wrong; here Triton's interpreter carries them out.
    vars(runner)["kernels"] = inference_table(torch.float32, device="cpu") if own else None
    with torch.inference_mode(False):
        decoder = decoder_of(name, runner, layers)
    source = Source.of([[7, 8, 9, EOS]])
    if not own:
        decoder.decode(source, Limits(max_length=6))
        return recorder
    from triton.runtime.interpreter import GridExecutor

    launch = GridExecutor.__call__

    def launched(self: Any, *arguments: Any, **options: Any) -> Any:
        return recorder.launched(self.fn.__name__.lstrip("_"), lambda: launch(self, *arguments, **options))

    with mock.patch.object(GridExecutor, "__call__", launched), mock.patch.object(CudaGraphRunner, "fuses", True):
        decoder.decode(source, Limits(max_length=6))
    return recorder


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--decoders", default="greedy,interleaved")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="nothing of our own")
    arguments = parser.parse_args()
    names = arguments.decoders.split(",")
    found = {name: counted(name, arguments.layers, not arguments.plain).iterating for name in names}
    every = sorted(set().union(*found.values()), key=lambda one: (not one.startswith("own"), one))
    width = max(map(len, every))
    for title, row in [("", names), *((one, [found[name][one] or "" for name in names]) for one in every)]:
        print(f"{title:{width}}", *(f"{cell:>{max(9, len(name))}}" for cell, name in zip(row, names, strict=True)))
    totals = [sum(found[name].values()) for name in names]
    print(f"{'all':{width}}", *(f"{cell:>{max(9, len(name))}}" for cell, name in zip(totals, names, strict=True)))


if __name__ == "__main__":
    main()
