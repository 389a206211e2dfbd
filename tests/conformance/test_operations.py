"""Every kernel against PyTorch's definition of its operation in float64, and which operation gets which kernel.

Kernels run on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from longstride import ops
from longstride.nn.transformer import Transformer
from longstride.ops.cuda import self_test
from longstride.ops.cuda.self_test import CASES, TOLERANCE, TURNS, Case, Chain, compare, conformance, random_of
from longstride.ops.cuda.table import INFERENCE, NAMES, TRAINING, inference_table
from longstride.ops.kernels import Kernel, KernelTable, current, kernels_of
from tests.conformance.link_check import link
from tests.models import tiny_model, tiny_options
from tests.nn.running_kernels import case_of, table_for, where

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


# --- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_gives_what_its_operation_should(name, dtype):
    """Within a few last bits of float64; a row's bits, and a slot's, depend on nothing else."""
    wide = CASES[name].operation in ("linear", "add_norm", "embed", "row_product")
    assert compare(CASES[name], table_for(CUDA), CUDA, dtype, 512 if wide else 64) <= TOLERANCE[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in CASES if name != "relu"])
def test_so_it_does_in_an_interpreter(name):
    assert compare(case_of(name), table_for(where()), where(), torch.float32) <= TOLERANCE[torch.float32]


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_links_choose_the_best_there_are(dtype):
    assert link(random_of(CUDA, dtype), 1000, 64, 64, 128) <= TOLERANCE[dtype]


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_nothing_speaks_against_them_when_a_runner_starts(dtype):
    assert self_test.unsupported_reason(CUDA, dtype) == ""


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_overlapping_changes_no_bit(dtype):
    from longstride.ops.cuda import overlap

    if against := overlap.unsupported_reason(CUDA):
        pytest.skip(against)
    assert self_test.overlap_unsupported_reason(CUDA, dtype, TURNS) == ""


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_doctors_find_nothing(dtype):
    assert set(conformance(CUDA, dtype).values()) == {""}


# --- the suite itself ------------------------------------------------------------------------------------------------


def by_definition(kernel: Kernel, spoil: float = 0.0) -> Kernel:
    """One that does what PyTorch does, where what nobody sees is a number, or something close to it."""

    def run(*given: Any) -> Any:
        for one in given:
            if isinstance(one, Tensor) and one.is_floating_point():
                one.nan_to_num_(0.0, neginf=float("-inf"))
        found = getattr(ops, kernel.operation).__wrapped__(*given)
        return (found[0] + spoil, *found[1:]) if isinstance(found, tuple) else found + spoil

    return replace(kernel, run=run)


def defined(spoil: float = 0.0) -> KernelTable:
    return KernelTable([by_definition(one, spoil) for one in INFERENCE if hasattr(ops, one.operation)], "cpu")


@pytest.mark.parametrize("name", CASES)
def test_a_case_accepts_the_definition_and_finds_what_is_wrong(name):
    case = replace(CASES[name], rows=(), slots={})  # whose bits PyTorch does not promise
    assert compare(case, defined(), CPU, torch.float32) <= TOLERANCE[torch.float32]
    assert compare(case, defined(spoil=1e-2), CPU, torch.float32) > TOLERANCE[torch.float32]


def test_a_case_finds_rows_and_slots_that_depend_on_others():
    def mean(x: Tensor, added: Tensor, *_: Any) -> Tensor:
        return x + x.mean(0, keepdim=True)

    kernel = next(kernel for kernel in INFERENCE if kernel.operation == "add_norm")
    with pytest.raises(ArithmeticError, match="other rows"):
        compare(CASES["norm"], KernelTable([replace(kernel, run=mean)], "cpu"), CPU, torch.float32)
    product = replace(INFERENCE[0], run=lambda x, weight, *_: (x + x.mean(1, keepdim=True)) @ weight.T)
    case: Case = replace(CASES["product"], rows=())
    with pytest.raises(ArithmeticError, match="step's width"):
        compare(case, KernelTable([product], "cpu"), CPU, torch.float32)


def test_a_case_is_for_its_own_kernel():
    with pytest.raises(ArithmeticError, match="carried out by mask, expected step"):
        compare(CASES["step"], table_for(CPU, ["mask"]), CPU, torch.float32)


def test_every_kernel_of_an_operation_has_a_case():
    tried = {(case.kernel, case.operation) for case in CASES.values()}
    every = {(one.name, one.operation) for one in INFERENCE if hasattr(ops, one.operation)}
    assert {pair for pair in every if pair[0] not in ("link", "tree")} == tried  # which have checks of their own


@pytest.mark.parametrize("step", [1, 9])
def test_the_quick_check_runs_a_layer(step):
    chain = Chain(random_of(CPU, torch.float32), step, layers=1)
    expected = chain.double().run(chain.inputs(0))
    with kernels_of(defined()):
        assert self_test.apart(chain.run(chain.inputs(0)), expected) <= TOLERANCE[torch.float32]


def test_elsewhere_it_says_why_not(monkeypatch):
    assert "expects a CUDA device" in self_test.unsupported_reason(CPU, torch.float16)
    assert "expects fp32" in self_test.unsupported_reason(CUDA, torch.float64)
    assert inference_table(torch.float64) is None
    assert all("expects a CUDA device" in why for why in conformance(CPU, torch.float32).values())
    self_test.unsupported_reason.cache_clear()
    monkeypatch.setattr("longstride.ops.kernels.find_spec", lambda _: True)
    monkeypatch.setattr(self_test, "remembered", lambda *_: 1 // 0)
    assert self_test.unsupported_reason(CUDA, torch.float16) in (
        "integer division or modulo by zero",
        "division by zero",
    )  # until Python 3.13, and since
    self_test.unsupported_reason.cache_clear()


# --- which kernel ----------------------------------------------------------------------------------------------------


class Noting(KernelTable):
    """As on a CUDA device; kernels do what PyTorch does, and are noted."""

    def __init__(self, without: tuple[str, ...] = ()) -> None:
        self.noted: set[str] = set()
        kernels = [one for one in INFERENCE if one.name not in without and hasattr(ops, one.operation)]
        super().__init__([by_definition(one) for one in kernels], "cpu")

    def find(self, operation: str, *arguments: Any, **named: Any) -> Kernel | None:
        kernel = super().find(operation, *arguments, **named)
        self.noted |= set() if kernel is None else {kernel.name}
        return kernel


def noted(model: Transformer, table: Noting) -> set[str]:
    """What encoding and steps of a model use, and that it changes nothing."""
    found = []
    for one in (None, table):
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(5, 11, (2, 6), generator=generator)
        with torch.inference_mode(), kernels_of(one):
            wide = model.encode_source(ids.repeat(1, 6), torch.tensor([36, 30]))
            memory, cache = model.new_memory(2, 36), model.new_cache(2, 20)
            memory.put(torch.arange(2), wide)
            start = torch.zeros(2, dtype=torch.int64)
            states = [model.extend(ids, start, cache, memory)]
            states += [model.extend(ids, start + 6, cache, memory, lambda q, k: (k <= q[..., None]) & (k != 1))]
            cache.indirection = torch.zeros(2, cache.longest, dtype=torch.int32)
            states += [model.extend(ids[:, :1], start + 12, cache, memory)]
            found.append(torch.cat(states, dim=1))
    torch.testing.assert_close(found[1], found[0])
    return table.noted


OF_A_MODEL = {"norm", "relu", "step", "lines", "mask", "source", "source-self", "product", "embed"}
PLAIN: dict[str, Any] = {"width": 64, "feed_forward": 128, "heads": 2}


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, set()),
        ({"norm": "pre"}, {"norm"}),
        ({"norm_type": "rms"}, {"norm"}),
        ({"activation": "gelu"}, {"relu"}),
        ({"gated": True}, {"relu"}),
        ({"bias": False}, {"relu"}),
        ({"embedding_norm": True}, set()),
        ({"key_value_heads": 1}, set()),
        ({"scale_attention": False}, {"source-self"}),
        ({"positions": "relative"}, {"step", "lines", "source-self", "embed"}),
        ({"width": 80, "feed_forward": 100}, OF_A_MODEL - {"norm", "embed"}),
    ],
    ids=lambda value: str(value if isinstance(value, dict) else sorted(value)),
)
def test_models_are_carried_out_by_kernels_that_fit_them(changes, missing):
    model = Transformer(tiny_options(**{**PLAIN, **changes})).float().eval().requires_grad_(False)
    assert noted(model, Noting()) == OF_A_MODEL - missing


def test_what_is_left_out_is_carried_out_by_others_or_by_none():
    model = tiny_model(3, torch.float32, **PLAIN)
    assert noted(model, Noting(("step", "norm"))) == OF_A_MODEL - {"step", "norm"}
    assert noted(model, Noting(tuple(NAMES))) == set()


def test_operations_that_no_kernel_supports_are_remembered():
    model, table = Transformer(tiny_options(**PLAIN, scale_attention=False)).float().eval(), Noting()
    noted(model.requires_grad_(False), table)
    assert table.unsupported == {"self_attention"}


def test_off_the_tables_device_pytorch_does_it():
    table = inference_table(torch.float32)
    assert table is not None
    assert table.find("linear", torch.zeros(1, 64), torch.zeros(64, 64)) is None


def test_a_table_is_in_force_within_its_block_and_thread_alone():
    outer, inner = table_for(CPU), table_for(CPU, ["norm"])
    assert current() is None
    assert not ops.uses("norm")
    with kernels_of(outer):
        with kernels_of(inner):
            assert current() is inner
            assert ops.uses("norm")
            assert not ops.uses("step")
            seen: list[object] = []
            thread = threading.Thread(target=lambda: seen.append(current()))
            thread.start()
            thread.join()
            assert seen == [None]
        with pytest.raises(ZeroDivisionError), kernels_of(inner):
            _ = 1 // 0
        with kernels_of(None):
            assert current() is outer
    assert current() is None


def test_the_table_can_be_shown():
    rows = KernelTable([*INFERENCE, *TRAINING]).rows()
    assert ("add_norm", "norm", "cuda", "float32, float16, bfloat16", "layer norm after the sum") in rows
    assert all(all(row) for row in rows)
    assert {row[1] for row in rows} == set(NAMES) - {"overlap"} | {"attention", "norms"}
