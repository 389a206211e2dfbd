"""A path of a tree has the bits of the chain that it is, in a step of the same shape.

On a CUDA device, or in Triton's interpreter (TRITON_INTERPRET=1), whose products are then made to add as tensor cores
do: so many neighbours exactly, and rounded before the next ones come to them. Keys that lie elsewhere show.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride import ops
from longstride.ops.attention import Causal, TreeCausal, TreeRule
from longstride.ops.cuda.self_test import TOLERANCE, apart
from longstride.ops.cuda.table import MOST_NODES
from longstride.ops.draft_tree import QUERIES
from longstride.ops.kernels import kernels_of
from tests.nn.running_kernels import few, table_for, where

HEADS, LONGEST = 2, 144
GROUP = 16
"""neighbours that tensor cores add at once"""


@pytest.fixture
def in_groups(monkeypatch):
    """Products whose bits depend on which numbers are neighbours, as on a device; returns the device."""
    device = where()
    if device.type == "cpu":
        from triton.runtime import interpreter

        def create_dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
            total = d.data.astype(numpy.float32)
            for first in range(0, a.data.shape[1], GROUP):
                group = slice(first, first + GROUP)
                total = total + (a.data[:, group].astype(float) @ b.data[group].astype(float)).astype(numpy.float32)
            return interpreter.TensorHandle(total.astype(d.data.dtype), d.dtype.scalar)

        monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)
    return device


class Step:
    """Slots behind pasts of their own, as a tree or as chains."""

    def __init__(self, seed: int, parents: Tensor, start: Tensor, device: torch.device, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(seed)
        rows, step, head = parents.shape[0], parents.shape[1] + 1, 64 if device.type == "cuda" else 16
        self.packed = torch.randn(rows, step, 3 * HEADS * head, generator=generator).to(device, dtype)
        self.start = start.to(device)
        self.slots = self.start[:, None] + torch.arange(step, device=device)
        past = (torch.arange(LONGEST) < start[:, None])[:, None, :, None]
        both = torch.randn(2, rows, HEADS, LONGEST, head, generator=generator).masked_fill(~past, float("nan"))
        self.keys, self.values = both.to(device, dtype)
        self.parents = parents.to(device)

    def run(self, packed: Tensor, bias: Causal) -> tuple[Tensor, Tensor, Tensor]:
        """By our kernel: what attention gives, and the caches afterwards."""
        keys, values = self.keys.clone(), self.values.clone()
        given = (packed, keys, values, self.slots, bias, HEADS)
        with kernels_of(kernels := table_for(packed.device)):
            chosen = kernels.find("cached_attention", *given)
            assert chosen is not None
            assert chosen.name == "step"
            return ops.cached_attention(*given), keys, values

    def as_tree(self) -> tuple[Tensor, Tensor, Tensor]:
        """With the shape that our kernel makes."""
        with kernels_of(table_for(self.packed.device)):
            above, _, paths = ops.tree_shape(self.parents)
        return self.run(self.packed, TreeCausal(self.slots, lambda: self.hidden(above), paths))

    def hidden(self, above: Tensor) -> Tensor:
        seen = TreeRule(self.start, above)(self.slots, torch.arange(LONGEST, device=self.start.device))
        return ops.additive(seen[:, None], self.packed)

    def as_chains(self, path: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Slots path [rows, step] one after another, in a step that is as wide."""
        index = path[..., None].expand_as(self.packed)
        return self.run(self.packed.gather(1, index), Causal(self.slots, lambda: self.packed))


def paths_of(parents: Tensor) -> list[list[list[int]]]:
    """Of each row, the path to each slot, slot 0 first"""
    found = []
    for row in parents.tolist():
        paths = [[0]]
        for slot, parent in enumerate(row, start=1):
            paths.append([*paths[parent], slot])
        found.append(paths)
    return found


def trees(seed: int, rows: int, nodes: int, straight: float) -> Tensor:
    """Random parents [rows, nodes]; so many of the nodes follow the one before them."""
    generator = torch.Generator().manual_seed(seed)
    follow = torch.rand(rows, nodes, generator=generator) < straight
    anywhere = torch.stack([torch.randint(0, node + 1, (rows,), generator=generator) for node in range(nodes)], dim=1)
    return torch.where(follow, torch.arange(nodes), anywhere)


@pytest.mark.gpu
@settings(
    max_examples=40 if torch.cuda.is_available() else 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 10_000),
    nodes=st.sampled_from([1, 3, 10, 15, 16, 31, 40, MOST_NODES]),
    starts=st.lists(st.integers(0, LONGEST - MOST_NODES - 1), min_size=1, max_size=1),
    straight=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_a_path_has_the_bits_of_its_chain(in_groups, seed, nodes, starts, straight, dtype):
    """Every slot, every path to it that ends in a slot nobody follows; and what is written is what was given."""
    if in_groups.type == "cpu":
        dtype = torch.float32  # of the sums, so that every difference shows
    start = torch.tensor(starts * (8 if in_groups.type == "cuda" else 1))
    parents = trees(seed, len(start), nodes, straight)
    step = Step(seed, parents, start, in_groups, dtype)
    found, keys, values = step.as_tree()
    every = paths_of(parents)
    followed = [{slot for path in paths for slot in path[:-1]} for paths in every]
    ends = [[slot for slot in range(nodes + 1) if slot not in some] for some in followed]
    for turn in range(max(map(len, ends))):
        some = [paths[slots[turn % len(slots)]] for paths, slots in zip(every, ends, strict=True)]
        path = torch.tensor([one + [0] * (nodes + 1 - len(one)) for one in some]).to(in_groups)
        chain, chain_keys, chain_values = step.as_chains(path)
        for row, one in enumerate(some):
            assert torch.equal(found[row, one], chain[row, : len(one)]), (row, one)
            at = torch.tensor(one) + start[row]
            for tree_cache, chain_cache in ((keys, chain_keys), (values, chain_values)):
                moved = slice(int(start[row]), int(start[row]) + len(one))
                assert torch.equal(tree_cache[row, :, at], chain_cache[row, :, moved])


@pytest.mark.gpu
@settings(max_examples=3)
@given(
    seed=st.integers(0, 10_000),
    nodes=st.sampled_from([1, 10, 31, MOST_NODES]),
    straight=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_a_tree_is_attended_to_as_defined(seed, nodes, straight):
    device = where()
    step = Step(seed, trees(seed, 2, nodes, straight), torch.tensor([3, 70]), device, torch.float32)
    found, *_ = step.as_tree()
    keys, values = (one.nan_to_num(0.0).double() for one in (step.keys, step.values))
    above = ops.tree_shape(step.parents)[0]
    bias = step.hidden(above).double()
    right = ops.cached_attention(step.packed.double(), keys, values, step.slots, bias, HEADS)
    assert apart(found, right) <= TOLERANCE[torch.float32]


@settings(max_examples=50)
@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(1, MOST_NODES),
    straight=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_paths_that_are_walked_lead_past_every_slot(seed, nodes, straight):
    """Each slot is one of the last so many of some path, counted as tiles are; and paths are what parents say."""
    parents = trees(seed, 2, nodes, straight)
    paths = ops.tree_shape(parents)[2]
    assert paths is not None
    for row, right in enumerate(paths_of(parents)):
        answered = set()
        for slot in range(nodes + 1):
            count = int(paths[row, slot, 0])
            assert count in (0, len(right[slot]))
            assert paths[row, slot, 1 : 1 + len(right[slot])].tolist() == right[slot]
            if count:
                answered |= set(right[slot][(count - 1) // QUERIES * QUERIES :])
        assert answered == set(range(nodes + 1))


def laid_out(tree: bool, dtype: str) -> list[str]:
    """How the kernel's products and sums lie in threads, in order, when it is compiled for an H100"""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from longstride.ops.cuda.decode_attention import _extend

    sizes = {"QUERIES": QUERIES, "KEYS": 64, "HEAD": 64}
    constants = {**sizes, "LINED": False, "WHOLE": False, "TREE": tree, "LOCAL": 0, "OVERLAP": 0}
    tensors = dict.fromkeys(("packed", "keys", "values", "out"), f"*{dtype}")
    signature = {"scale": "fp32", "slots": "*i64", "lines": "*i64", "paths": "*i32", **tensors}
    kinds = {name: "constexpr" if name in constants else signature.get(name, "i32") for name in _extend.arg_names}
    places = {(place,): constants[name] for place, name in enumerate(kinds) if name in constants}
    aligned = [
        place for place, name in enumerate(kinds) if kinds[name][0] == "*" or name.startswith(("keys", "values"))
    ]
    source = ASTSource(_extend, kinds, places, {(place,): [["tt.divisibility", 16]] for place in aligned})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 1})
    text = made.asm["ttgir"]
    assert "ld.global.b16" not in made.asm["ptx"], "keys and values are read number by number"
    layouts = dict(re.findall(r"^(#\w+) = (#ttg\..*)$", text, re.MULTILINE))
    found = re.findall(r"tt\.dot .*? : (.*?) loc|\}\) : (\(tensor.*?) loc", text)
    return [re.sub(r"#\w+(?![\w.])", lambda name: layouts.get(name[0], name[0]), "".join(one)) for one in found]


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning")
@pytest.mark.parametrize("dtype", few(["fp16", "bf16"]))
def test_trees_and_chains_are_laid_out_alike(dtype, tmp_path):
    """What else bits depend on: a product of keys that were found by bytes was laid out for bytes."""
    triton = pytest.importorskip("triton")
    if triton.knobs.runtime.interpret:  # and compiles nothing here
        own = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-q",
            f"{__file__}::test_trees_and_chains_are_laid_out_alike[{dtype}]",
        ]
        ran = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
        assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
        return
    chain, tree = laid_out(False, dtype), laid_out(True, dtype)
    assert len(chain) == 8
    assert tree == chain
