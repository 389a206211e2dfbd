"""Dropout, residual sum and norm at once: equal to plain arithmetic where it runs, and out of the way elsewhere.

The kernels run on a CUDA device or, where Triton is installed and TRITON_INTERPRET=1 is set, in its interpreter.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

from longstride.nn.layers import EncoderLayer, Residual
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.ops.cuda import dropout_norm
from longstride.ops.cuda.table import TRAINING, training_table
from longstride.ops.kernels import KernelTable, train_with
from tests.nn.running_kernels import few, where

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
EPSILON = 1e-5


@pytest.fixture(autouse=True)
def _switched_on() -> Iterator[None]:
    train_with(training_table(["norms"]))
    yield
    train_with(None)


@pytest.fixture
def device() -> str:
    return where().type


@pytest.fixture
def dtype(request: pytest.FixtureRequest, device: str) -> torch.dtype:
    """The interpreter is exact, and half precision is slow on a CPU."""
    return request.param if device == "cuda" else torch.float32


def leaves(*shape: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, a block's output, weight and bias."""
    stream = (3 * torch.randn(*shape) + 1, torch.randn(*shape))
    parameters = (1 + torch.randn(shape[-1]) / 2, torch.randn(shape[-1]))
    x, block = (values.to(device, dtype).requires_grad_() for values in stream)
    weight, bias = (values.to(device).requires_grad_() for values in parameters)
    return x, block, weight, bias


def plain(x: Tensor, block: Tensor, weight: Tensor, bias: Tensor, kept: Tensor | None = None) -> Tensor:
    """The slow twin; `kept` holds 0 or what is multiplied by."""
    return F.layer_norm(x + (block if kept is None else block * kept), weight.shape, weight, bias, EPSILON)


def compare(made: Tensor, given: tuple[Tensor, ...], kept: Tensor | None, dtype: torch.dtype) -> None:
    """Values and gradients against float64; small ones are measured by the largest."""
    exact = [leaf.detach().double().requires_grad_() for leaf in given]
    expected = plain(*exact, None if kept is None else kept.double())
    grad = torch.randn(made.shape, device=made.device).to(made.dtype)
    made.backward(grad)
    expected.backward(grad.double())
    assert made.dtype == given[0].dtype
    pairs = [(made.detach(), expected.detach())]
    pairs += [(leaf.grad, twin.grad) for leaf, twin in zip(given, exact, strict=True)]
    for found, known in pairs:
        bound = TOLERANCE[dtype] * float(known.abs().max())
        torch.testing.assert_close(found.double(), known, atol=bound, rtol=TOLERANCE[dtype])


def with_seed(x: Tensor, block: Tensor, weight: Tensor, bias: Tensor, seed: int, dropout: float) -> Tensor:
    drawn = torch.tensor([seed], device=x.device)
    return torch.ops.longstride.dropout_add_norm(x, block, weight, bias, drawn, dropout, EPSILON)[0]


def shown_mask(shape: tuple[int, ...], seed: int, dropout: float, dtype: torch.dtype, device: str) -> Tensor:
    """[...] bool, what this seed keeps: where a block of ones comes through, a sum stands out."""
    zeros, ones = torch.zeros(shape, dtype=dtype, device=device), torch.ones(shape, dtype=dtype, device=device)
    weight, bias = torch.ones(shape[-1], device=device), torch.zeros(shape[-1], device=device)
    return with_seed(zeros, ones, weight, bias, seed, dropout) > 0


# --- where the kernels run -------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], indirect=True)
@pytest.mark.parametrize("width", [256, 512])
@pytest.mark.parametrize("rows", [(1,), (5,), (3, 7), (2, 30)])
def test_a_plain_sum_and_norm(dtype: torch.dtype, device: str, width: int, rows: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    given = leaves(*rows, width, dtype=dtype, device=device)
    compare(dropout_norm.add_norm(*given, EPSILON), given, None, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
@pytest.mark.parametrize("width", [256, 512])
@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_both_passes_drop_the_same(dtype: torch.dtype, device: str, width: int, dropout: float) -> None:
    torch.manual_seed(2)
    shape = (3, 9, width)
    mask = shown_mask(shape, 7, dropout, dtype, device)
    share = mask.double().mean()
    assert abs(share - (1 - dropout)) < 5 * math.sqrt(dropout * (1 - dropout) / mask.numel())
    given = leaves(*shape, dtype=dtype, device=device)
    compare(with_seed(*given, 7, dropout), given, mask / (1 - dropout), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
def test_what_is_dropped_looks_random(dtype: torch.dtype, device: str) -> None:
    """Neighbours in a row, in a column and in another seed agree as often as chance says."""
    here, there = (shown_mask((40, 512), seed, 0.5, dtype, device) for seed in (1, 2))
    pairs = [(here[:, 1:], here[:, :-1]), (here[1:], here[:-1]), (here[:, 8:], here[:, :-8]), (here, there)]
    for a, b in pairs:
        agree = (a == b).double().mean()
        assert abs(agree - 0.5) < 5 * math.sqrt(0.25 / a.numel())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
def test_a_row_does_not_depend_on_the_number_of_rows(dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(3)
    x, block, weight, bias = leaves(11, 256, dtype=dtype, device=device)
    whole = with_seed(x, block, weight, bias, 5, 0.3)
    assert torch.equal(with_seed(x[:4], block[:4], weight, bias, 5, 0.3), whole[:4])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
def test_dropout_follows_the_generator(dtype: torch.dtype, device: str) -> None:
    given = leaves(4, 256, dtype=dtype, device=device)
    torch.manual_seed(4)
    first, second = (dropout_norm.add_norm(*given, EPSILON, 0.3) for _ in range(2))
    torch.manual_seed(4)
    again = dropout_norm.add_norm(*given, EPSILON, 0.3)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_frozen_norms_get_no_gradients(dtype: torch.dtype, device: str, dropout: float) -> None:
    torch.manual_seed(5)
    given = leaves(6, 256, dtype=dtype, device=device)
    x, block, weight, bias = given
    with_seed(x, block, weight, bias, 3, dropout).sum().backward()
    expected = x.grad.clone(), block.grad.clone()
    x.grad = block.grad = weight.grad = bias.grad = None
    with_seed(x, block, weight.detach(), bias.detach(), 3, dropout).sum().backward()
    assert torch.equal(x.grad, expected[0])
    assert torch.equal(block.grad, expected[1])
    assert weight.grad is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
def test_operands_may_lie_in_any_way_and_be_empty(dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(6)
    x, block, weight, bias = leaves(3, 4, 256, dtype=dtype, device=device)
    turned = dropout_norm.add_norm(x.transpose(0, 1), block.transpose(0, 1), weight, bias, EPSILON)
    assert torch.equal(turned.transpose(0, 1), dropout_norm.add_norm(x, block, weight, bias, EPSILON))
    turned[:, :1].sum().backward()
    assert x.grad.isfinite().all()
    none = dropout_norm.add_norm(x[:0], block[:0], weight, bias, EPSILON, 0.1)
    none.sum().backward()
    assert none.shape == (0, 4, 256)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
@pytest.mark.parametrize("dropout", few([0.25, 0.0]))
@pytest.mark.parametrize("frozen", few([False, True]))
def test_one_graph_serves_all_numbers_of_rows(dtype: torch.dtype, device: str, dropout: float, frozen: bool) -> None:
    torch.manual_seed(7)
    linear = nn.Linear(256, 256, device=device, dtype=dtype)
    norm = nn.LayerNorm(256, device=device).requires_grad_(not frozen)
    ramp = torch.linspace(-1, 1, 256, device=device)

    def block(x: Tensor, seed: Tensor) -> Tensor:
        made = linear(x)
        normed: Tensor = torch.ops.longstride.dropout_add_norm(
            x, made, norm.weight, norm.bias, seed if dropout else None, dropout, EPSILON
        )[0]
        return (normed.float() * ramp).sum()

    graph = torch.compile(block, dynamic=True, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
    leaves_of = [*linear.parameters(), *(() if frozen else norm.parameters())]
    for shape in ((2, 3), (5, 4), (7, 6)):
        x = torch.randn(*shape, 256, device=device).to(dtype).requires_grad_()
        seed = torch.randint(0, 2**31 - 1, (1,), device=device)
        found, expected = (torch.autograd.grad(run(x, seed), [x, *leaves_of]) for run in (graph, block))
        for one, other in zip(found, expected, strict=True):
            bound = TOLERANCE[dtype] * float(other.abs().max())
            torch.testing.assert_close(one, other, atol=bound, rtol=TOLERANCE[dtype])


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("width", [256, 512])
def test_a_model_learns_the_same_with_either(compiled: bool, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(8)
    size = {"width": width, "heads": 4, "feed_forward": 256, "encoder_layers": 2, "decoder_layers": 2}
    model = Transformer(TransformerOptions(vocabulary=50, dropout=0.0, **size)).cuda().train()
    used = []
    real = KernelTable.find
    monkeypatch.setattr(KernelTable, "find", lambda *given: used.append(real(*given)) or used[-1])
    batches = [
        (torch.randint(5, 50, (3, source), device="cuda"), torch.randint(5, 50, (3, target), device="cuda"))
        for source, target in [(7, 9), (30, 33), (100, 128), (40, 20)]
    ]

    def gradients(source: Tensor, target: Tensor, exact: bool = False) -> list[Tensor]:
        with torch.autocast("cuda", torch.bfloat16, enabled=not exact):
            hidden = model.decode(target, model.encode(source, None), None)
        chosen = torch.Generator("cuda").manual_seed(6)
        loss = (hidden.float() * torch.randn(hidden.shape, generator=chosen, device="cuda")).mean()
        return list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))

    train_with(None)
    expected = [gradients(*batch) for batch in batches]
    exact = [gradients(*batch, exact=True) for batch in batches]
    assert not used
    train_with(training_table(["norms"]))
    if compiled:
        monkeypatch.setattr(KernelTable, "find", real)
        for layer in [*model.encoder.layers, *model.decoder.layers]:
            layer.compile(dynamic=True, fullgraph=True)
    else:
        used.clear()
    for batch, before, truth in zip(batches, expected, exact, strict=True):
        for found, known, true in zip(gradients(*batch), before, truth, strict=True):
            if known is not None:
                assert (found - true).norm() <= 2 * (known - true).norm() + 0.02 * true.norm() + 1e-6
    assert compiled or len([kernel for kernel in used if kernel]) == 10 * len(batches)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("rows", [1000, 32768])
def test_errors_are_no_larger_than_the_librarys(rows: int) -> None:
    torch.manual_seed(9)
    given = leaves(rows, 512, dtype=torch.bfloat16, device="cuda")
    grad = torch.randn(rows, 512, device="cuda").bfloat16()

    def library(x: Tensor, block: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x + block, (512,), weight.to(x.dtype), bias.to(x.dtype), EPSILON)

    def results(operands: tuple[Tensor, ...], made: Tensor) -> list[Tensor]:
        return [made.detach(), *torch.autograd.grad(made, operands, grad.to(made.dtype))]

    exact = tuple(leaf.detach().float().requires_grad_() for leaf in given)
    truth = results(exact, plain(*exact))
    theirs = results(given, library(*given))
    ours = results(given, dropout_norm.add_norm(*given, EPSILON))
    for true, known, found in zip(truth, theirs, ours, strict=True):
        assert (found.float() - true).norm() <= 1.2 * (known.float() - true).norm() + 1e-4 * true.norm()


@pytest.mark.gpu
@needs_cuda
def test_a_compiled_layer_learns_with_dropout() -> None:
    """The loss falls as far as with the library's kernels, from the same start."""

    def last_loss(own: bool) -> float:
        train_with(training_table(["norms"]) if own else None)
        torch.compiler.reset()
        torch.manual_seed(10)
        layer = EncoderLayer(
            TransformerOptions(vocabulary=10, width=256, heads=4, feed_forward=512, dropout=0.1)
        ).cuda()
        layer.compile(dynamic=True, fullgraph=True)
        optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)
        x = torch.randn(64, 20, 256, device="cuda").bfloat16()
        wanted = x.float().flip(1)
        losses = []
        for _ in range(150):
            with torch.autocast("cuda", torch.bfloat16):
                loss = (layer(x, None).float() - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return float(torch.stack(losses[-20:]).mean())

    library, own = last_loss(False), last_loss(True)
    assert abs(own - library) < 0.1 * library


# --- elsewhere -------------------------------------------------------------------------------------------------------


def test_training_on_a_cpu_leaves_the_kernels_alone() -> None:
    residual = Residual(TransformerOptions(vocabulary=10, width=256, dropout=0.5)).train()
    known = set(sys.modules)
    x = torch.randn(2, 3, 256)
    torch.manual_seed(11)
    found = residual.leave(x, x)
    torch.manual_seed(11)
    assert torch.equal(found, residual.norm(x + residual.dropout(x)))
    assert not {name for name in set(sys.modules) - known if name.startswith("triton") or name.endswith("_kernels")}


def on_cuda(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """A tensor that says it is on a CUDA device; made and used under FakeTensorMode."""
    return torch.empty(shape, dtype=dtype, device="cuda:0")


def test_what_is_served() -> None:
    table = KernelTable(TRAINING)

    def serves(x: Tensor, block: Tensor) -> bool:
        weight = torch.empty(x.shape[-1], device="cuda:0")
        assert table.find("add_norm", x, block, weight, None, EPSILON, 0.1) is None  # the root mean square alone
        with torch.no_grad():
            assert table.find("add_norm", x, block, weight, weight, EPSILON) is None
        return table.find("add_norm", x, block, weight, weight, EPSILON, 0.1) is not None

    with FakeTensorMode():
        x = on_cuda(4, 7, 512)
        assert serves(x, x)
        assert serves(x.half(), x.half())
        assert serves(on_cuda(3, 256), on_cuda(3, 256))
        assert not serves(x, x.half())
        assert not serves(x.float(), x.float())
        assert not serves(x.float(), x)
        assert not serves(x, on_cuda(1, 7, 512))
        assert not serves(on_cuda(4, 384), on_cuda(4, 384))
        assert not serves(torch.empty(4, 512, dtype=torch.bfloat16), torch.empty(4, 512, dtype=torch.bfloat16))


@pytest.mark.parametrize(("norm", "training", "asked"), [("post", True, 1), ("post", False, 1), ("pre", True, 0)])
def test_only_post_norm_asks(norm: str, training: bool, asked: int) -> None:
    calls = []
    kernel = replace(TRAINING[-1], run=lambda *given: calls.append(given) or given[0], supports=lambda *_: True)
    train_with(KernelTable([kernel], "cpu"))
    residual = Residual(TransformerOptions(vocabulary=10, width=256, norm=norm, dropout=0.3)).train(training)
    x = torch.randn(2, 256)
    residual.leave(x, x)
    assert len(calls) == asked
    if calls:
        assert calls[0][2] is residual.norm.weight
        assert calls[0][4:] == (residual.norm.eps, 0.3 if training else 0.0)


def test_compiled_layers_see_which_table_is_in_force() -> None:
    """In one graph, which is compiled anew where the table, or whether gradients are wanted, changes."""
    kernel = replace(TRAINING[-1], run=lambda x, *_: x * 0, supports=lambda *_: torch.is_grad_enabled())
    residual = Residual(TransformerOptions(vocabulary=10, width=8, dropout=0.0)).train()
    compiled = torch.compile(residual.leave, backend="eager", fullgraph=True, dynamic=True)
    x = torch.randn(2, 8)
    for table in (None, KernelTable([kernel], "cpu"), None):
        train_with(table)
        assert (compiled(x, x) == 0).all() == (table is not None)
        with torch.no_grad():
            assert not (compiled(x, x) == 0).all()


def test_a_table_for_training_needs_a_device() -> None:
    there = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    assert (training_table(["norms"]) is not None) == there
    assert training_table([]) is None


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("frozen", [False, True])
def test_shapes_are_known_without_a_device(dropout: float, frozen: bool) -> None:
    """What torch.compile is told: the operator's results and gradients, of the right shape and type."""
    with FakeTensorMode():
        x, block = (torch.empty(3, 7, 256, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
        weight, bias = (torch.empty(256, requires_grad=not frozen) for _ in range(2))
        normed = dropout_norm.add_norm(x, block, weight, bias, EPSILON, dropout)
        assert normed.shape == x.shape
        assert normed.dtype == torch.bfloat16
        normed.sum().backward()
        assert x.grad.shape == block.grad.shape == x.shape
        assert x.grad.dtype == torch.bfloat16
        assert frozen or weight.grad.shape == bias.grad.shape == (256,)
        assert frozen or weight.grad.dtype == torch.float32
