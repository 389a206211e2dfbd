"""Kernels of our own: what they give, and how modules come to use them.

Those of Triton run on a CUDA device, or in its interpreter where TRITON_INTERPRET is 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from longstride.nn import fused, fused_trials, overlap
from longstride.nn.attention import CrossAttention, SelfAttention
from longstride.nn.decode_product import StepLinear
from longstride.nn.fused import KERNELS, Fusible, Kernel, add_norm, embed, linear_relu
from longstride.nn.fused_trials import TOLERANCE, serves, switch, why_not
from longstride.nn.layers import FeedForward, Residual
from longstride.nn.transformer import Transformer
from tests.models import tiny_options
from tests.nn.running_kernels import where

SIZES = {
    "norm": (512,),
    "relu": (512, 2048),
    "step": (64,),
    "lines": (64,),
    "mask": (64,),
    "source": (64,),
    "source-self": (64,),
    "product": (2048, 512),
    "embed": (512,),
    "link": (1000, 64, 64, 128),
    "overlap": (),
}
OF_LATTICES = {"candidates", "edges", "paths"}
"""Which are tried where they are, in tests/lattice."""
OF_A_MODEL = set(KERNELS) - {"link", "overlap", *OF_LATTICES}
"""All but those that heads and drafters alone have, and what is no module's."""
CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _overlap_as_before() -> Iterator[None]:
    before = overlap.switched_on()
    yield
    overlap.switch(before)


def served_model(**changes: object) -> Transformer:
    """One whose sizes all kernels are written for."""
    return Transformer(tiny_options(width=64, feed_forward=128, heads=2, **changes)).eval().requires_grad_(False)


def used(model: nn.Module) -> set[str]:
    """Which kernels any part uses."""
    found = set()
    for part in model.modules():
        if isinstance(part, Residual) and part.own:
            found.add("norm")
        if isinstance(part, FeedForward) and part.own:
            found.add("relu")
        if isinstance(part, SelfAttention):
            own = {"step": part.own_steps, "lines": part.own_lines}
            own |= {"mask": part.own_masks, "source-self": part.own_sources}
            found |= {name for name, on in own.items() if on}
        if isinstance(part, CrossAttention) and part.own:
            found.add("source")
        if isinstance(part, StepLinear) and part.own:
            found.add("product")
        if isinstance(part, Transformer) and part.own:
            found.add("embed")
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("width", [16, 80, 512])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5)])
def test_a_sum_and_its_norm_at_once(width, shape):
    device = where()
    x, added = (torch.randn(*shape, width, device=device) * 3 for _ in range(2))
    norm = nn.LayerNorm(width, device=device)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    with torch.inference_mode():
        torch.testing.assert_close(add_norm(x, added, norm), norm(x + added), atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
def test_a_row_does_not_depend_on_the_number_of_rows():
    device = where()
    x, added = torch.randn(9, 48, device=device), torch.randn(9, 48, device=device)
    norm = nn.LayerNorm(48, device=device)
    with torch.inference_mode():
        whole = add_norm(x, added, norm)
        assert all(
            torch.equal(add_norm(x[row : row + 1], added[row : row + 1], norm)[0], whole[row]) for row in range(9)
        )


@pytest.mark.gpu
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("step", [1, 4])
def test_what_the_first_layer_reads(positions, step):
    """Also of ids that are one tensor's columns, or one id said again, and of slots beyond the last position."""
    device = where()
    model = served_model(positions=positions, longest=12).to(device)
    every = torch.randint(5, 11, (3, 9), generator=torch.Generator().manual_seed(0)).to(device)
    start = torch.tensor([0, 7, 11], device=device)
    for ids in (every[:, 2 : 2 + step], every[:, :1].expand(-1, step)):
        with torch.inference_mode():
            found = embed(ids, start, model.target_embedding.weight, model.scale, model.target_positions.rows, 11)
            x, slots = model._embed_step(ids, start, None)
        assert torch.equal(found[1], slots)
        if device.type == "cuda":
            assert torch.equal(found[0], x)
        torch.testing.assert_close(found[0], x)  # the interpreter rounds product and sum by themselves


@pytest.mark.gpu
def test_what_an_encoders_first_layer_reads():
    device = where()
    model = served_model(longest=12).to(device)
    ids = torch.randint(5, 11, (3, 9), generator=torch.Generator().manual_seed(0)).to(device)
    with torch.inference_mode():
        expected = model.embed_source(ids)
        model.use(["embed"])
        torch.testing.assert_close(model.embed_source(ids), expected)
        with pytest.raises((IndexError, RuntimeError)):  # what is longer than there are positions is refused as before
            model.to("cpu").embed_source(torch.full((1, 30), 5))


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 0)])
def test_a_product_with_its_relu(shape):
    linear = nn.Linear(12, 20).double()
    x = torch.randn(*shape, 12, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(linear_relu(x, linear), linear(x).relu())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", [name for name in SIZES if name != "relu"])
def test_nothing_speaks_against_them_on_a_gpu(name, dtype):
    """Whether a product's bits stay the same with a ReLU at its end is for the library to say."""
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    if name == "overlap" and overlap.why_not(CUDA):
        pytest.skip(overlap.why_not(CUDA))
    assert why_not(Kernel(name, SIZES[name]), CUDA, dtype) == ""


@pytest.mark.parametrize("name", SIZES)
def test_elsewhere_it_says_why_not(name):
    kernel = Kernel(name, SIZES[name])
    assert "expects a CUDA device" in why_not(kernel, torch.device("cpu"), torch.float16)
    assert "expects fp32" in why_not(kernel, CUDA, torch.float64)
    assert not serves(torch.device("cpu"), torch.float16)
    assert not serves(CUDA, torch.float64)


def test_nothing_is_used_before_it_is_switched_on():
    model = served_model()
    assert used(model) == set()
    assert switch(model, torch.device("cpu"), torch.float32) == {}
    assert used(model) == set()


def test_all_are_used_that_nothing_speaks_against(monkeypatch):
    monkeypatch.setattr(fused_trials, "why_not", lambda *_: "")
    model = served_model()
    assert switch(model, CUDA, torch.float16) == {}
    assert used(model) == OF_A_MODEL
    switch(model, CUDA, torch.float16, ["norm", "step"])
    assert used(model) == {"norm", "step"}
    switch(model, CUDA, torch.float16, [])
    assert used(model) == set()


def test_one_that_fails_is_left_out_alone(monkeypatch):
    def refuse(kernel: Kernel, *_: object) -> str:
        return "it is broken" if kernel.name == "step" else ""

    monkeypatch.setattr(fused_trials, "why_not", refuse)
    model = served_model()
    assert switch(model, CUDA, torch.float16) == {"it is broken": ["step"]}
    assert used(model) == OF_A_MODEL - {"step"}


def test_a_kernel_that_cannot_be_compiled_or_is_wrong_is_refused(monkeypatch):
    def broken(*_: object) -> float:
        raise RuntimeError("no such instruction.\nand a long story")

    monkeypatch.setattr(fused, "find_spec", lambda _: True)
    monkeypatch.setitem(fused_trials._TRIALS, "norm", broken)
    monkeypatch.setattr(fused_trials, "trial", lambda kernel, *_: fused_trials._TRIALS[kernel.name]())
    assert why_not(Kernel("norm", (3,)), CUDA, torch.float16) == "no such instruction"
    monkeypatch.setitem(fused_trials._TRIALS, "relu", lambda: 1e-4)
    assert "0.0001 away" in why_not(Kernel("relu", (3,)), CUDA, torch.float16)
    monkeypatch.setitem(fused_trials._TRIALS, "step", lambda: 1e-4)
    assert why_not(Kernel("step", (3,)), CUDA, torch.float16) == ""
    why_not.cache_clear()


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"norm": "pre"}, {"norm"}),
        ({"activation": "gelu"}, {"relu"}),
        ({"width": 80, "feed_forward": 100}, OF_A_MODEL - {"norm", "embed"}),
    ],
)
def test_modules_name_only_kernels_that_fit_them(changes, missing):
    model = Transformer(tiny_options(**{"width": 64, "feed_forward": 128, "heads": 2, **changes}))
    named = {kernel.name for part in model.modules() if isinstance(part, Fusible) for kernel in part.kernels()}
    assert named == OF_A_MODEL - missing
