"""Our own attention for short sequences: equal to plain arithmetic where it runs, and out of the way elsewhere.

The kernels run on a CUDA device or, where Triton is installed and TRITON_INTERPRET=1 is set, in its interpreter.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from longstride import ops
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.ops.cuda import short_attention
from longstride.ops.cuda.table import TRAINING, training_table
from longstride.ops.kernels import KernelTable, train_with
from tests.nn.running_kernels import where

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@pytest.fixture(autouse=True)
def _switched_on() -> Iterator[None]:
    train_with(training_table(["attention"]))
    yield
    train_with(None)


@pytest.fixture
def device() -> str:
    return where().type


@pytest.fixture
def dtype(request: pytest.FixtureRequest, device: str) -> torch.dtype:
    """The interpreter is exact, and half precision is slow on a CPU."""
    return request.param if device == "cuda" else torch.float32


def plain(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, kept: Tensor | None = None) -> Tensor:
    """The slow twin, in float32: [rows, length, heads, head] each -> [rows, queries, heads * head]"""
    scores = torch.einsum("rqhd,rkhd->rhqk", q, k) / math.sqrt(q.shape[-1])
    if visible is not None:
        scores = scores.masked_fill(~(visible if visible.dim() == 4 else visible[:, None, None]), -math.inf)
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
    weights = scores.softmax(-1)
    return torch.einsum("rhqk,rkhd->rqhd", weights if kept is None else weights * kept, v).flatten(2)


def close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(found.float(), expected.float(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def drawn(*shape: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    """The same random numbers as a leaf of this type and as a float32 leaf."""
    low = torch.randn(*shape).to(dtype).to(device)
    return low.clone().requires_grad_(), low.float().requires_grad_()


def some_visible(rows: int, length: int, device: str) -> Tensor:
    return ops.real(torch.randint(1, length + 1, (rows,)), length).to(device)


# --- where the kernels run -------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], indirect=True)
@pytest.mark.parametrize(
    ("rows", "heads", "head", "length", "causal", "padded"),
    [
        (2, 3, 32, 1, True, False),
        (3, 2, 32, 16, False, True),
        (2, 2, 64, 30, True, False),
        (2, 2, 64, 33, False, True),
        (2, 2, 64, 64, False, False),
        (1, 2, 64, 100, True, False),
        (2, 1, 32, 128, False, True),
    ],
)
def test_self_attention_is_plain_attention(
    dtype: torch.dtype, device: str, rows: int, heads: int, head: int, length: int, causal: bool, padded: bool
) -> None:
    torch.manual_seed(1)
    packed, exact = drawn(rows, length, 3 * heads * head, dtype=dtype, device=device)
    visible = some_visible(rows, length, device) if padded else None
    mask = None if visible is None else visible[:, None, None]
    mixed = short_attention.self_attention(packed, heads, mask, causal, 0.0)
    expected = plain(*exact.view(rows, length, 3, heads, head).unbind(2), visible, causal)
    close(mixed, expected, dtype)
    grad = torch.randn(mixed.shape, device=device)
    mixed.backward(grad.to(dtype))
    expected.backward(grad.to(dtype).float())
    close(packed.grad, exact.grad, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
@pytest.mark.parametrize("length", [9, 30, 50, 128])
@pytest.mark.parametrize("shared", [False, True])
def test_any_mask_of_queries_and_keys(dtype: torch.dtype, device: str, length: int, shared: bool) -> None:
    torch.manual_seed(8)
    packed, exact = drawn(2, length, 3 * 2 * 64, dtype=dtype, device=device)
    mask = (torch.rand(1 if shared else 2, 1, length, length) < 0.3) | torch.eye(length, dtype=torch.bool)
    mask = mask.to(device)
    mixed = short_attention.self_attention(packed, 2, mask, False, 0.0)
    expected = plain(*exact.view(2, length, 3, 2, 64).unbind(2), mask, False)
    close(mixed, expected, dtype)
    grad = torch.randn(mixed.shape, device=device)
    mixed.backward(grad.to(dtype))
    expected.backward(grad.to(dtype).float())
    close(packed.grad, exact.grad, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], indirect=True)
@pytest.mark.parametrize(("queries", "keys", "padded"), [(1, 1, False), (9, 30, True), (40, 12, True), (5, 128, False)])
def test_cross_attention_is_plain_attention(
    dtype: torch.dtype, device: str, queries: int, keys: int, padded: bool
) -> None:
    torch.manual_seed(2)
    rows, heads, head = 2, 2, 64
    asking, exact_asking = drawn(rows, queries, heads * head, dtype=dtype, device=device)
    packed, exact = drawn(rows, keys, 2 * heads * head, dtype=dtype, device=device)
    visible = some_visible(rows, keys, device) if padded else None
    k, v = (part.view(rows, keys, heads, head).transpose(1, 2) for part in packed.chunk(2, dim=-1))
    mask = None if visible is None else visible[:, None, None]
    mixed = short_attention.cross_attention(asking, k, v, mask, heads)
    k, v = (part.view(rows, keys, heads, head) for part in exact.chunk(2, dim=-1))
    expected = plain(exact_asking.view(rows, queries, heads, head), k, v, visible, False)
    close(mixed, expected, dtype)
    grad = torch.randn(mixed.shape, device=device)
    mixed.backward(grad.to(dtype))
    expected.backward(grad.to(dtype).float())
    close(asking.grad, exact_asking.grad, dtype)
    close(packed.grad, exact.grad, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
@pytest.mark.parametrize("length", [14, 30, 60])
def test_both_passes_drop_the_same_weights(dtype: torch.dtype, device: str, length: int) -> None:
    torch.manual_seed(3)
    rows, heads, head, dropout = 4, 2, 64, 0.25
    packed, exact = drawn(rows, length, 3 * heads * head, dtype=dtype, device=device)
    # Values that are unit vectors make the output show the weights themselves, and so what was dropped.
    showing = packed.detach().clone().view(rows, length, 3, heads, head)
    showing[:, :, 2] = torch.eye(length, head)[:, None].to(showing)
    seed = torch.tensor([7], device=device)
    operator = torch.ops.longstride.short_self_attention
    shown, _ = operator(showing.view_as(packed), None, seed, heads, False, dropout)
    kept = (shown.view(rows, length, heads, head).transpose(1, 2)[..., :length] != 0).float()
    assert abs(kept.mean() - (1 - dropout)) < 5 * math.sqrt(dropout * (1 - dropout) / kept.numel())
    assert not torch.equal(kept[:, 0], kept[:, 1])

    mixed, _ = operator(packed, None, seed, heads, False, dropout)
    views = exact.view(rows, length, 3, heads, head).unbind(2)
    expected = plain(*views, None, False, kept / (1 - dropout))
    close(mixed, expected, dtype)
    grad = torch.randn(mixed.shape, device=device)
    mixed.backward(grad.to(dtype))
    expected.backward(grad.to(dtype).float())
    close(packed.grad, exact.grad, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
def test_dropout_follows_the_generator(dtype: torch.dtype, device: str) -> None:
    packed, _ = drawn(2, 10, 3 * 64, dtype=dtype, device=device)
    torch.manual_seed(4)
    first, second = (short_attention.self_attention(packed, 1, None, True, 0.3) for _ in range(2))
    torch.manual_seed(4)
    again = short_attention.self_attention(packed, 1, None, True, 0.3)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16], indirect=True)
def test_a_row_that_sees_nothing_gets_zeros(dtype: torch.dtype, device: str) -> None:
    packed, _ = drawn(2, 10, 3 * 64, dtype=dtype, device=device)
    mask = torch.tensor([True, False], device=device)[:, None, None, None].expand(2, 1, 1, 10)
    mixed = short_attention.self_attention(packed, 1, mask, False, 0.0)
    mixed.sum().backward()
    assert mixed[0].any()
    assert not mixed[1].any()
    assert packed.grad.isfinite().all()


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_a_model_learns_the_same_with_either(compiled: bool, padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    model = Transformer(
        TransformerOptions(
            vocabulary=50, width=128, heads=2, feed_forward=128, encoder_layers=2, decoder_layers=2, dropout=0.0
        )
    )
    model.cuda().train()
    used = []
    real = KernelTable.find
    monkeypatch.setattr(KernelTable, "find", lambda *given: used.append(real(*given)) or used[-1])
    batches = []
    for source, target in [(7, 9), (30, 33), (100, 128), (40, 20)]:
        ids = torch.randint(5, 50, (3, source), device="cuda"), torch.randint(5, 50, (3, target), device="cuda")
        batches.append((*ids, some_visible(3, source, "cuda") if padded else None))

    def gradients(source: Tensor, target: Tensor, visible: Tensor | None, exact: bool = False) -> list[Tensor]:
        with torch.autocast("cuda", torch.bfloat16, enabled=not exact):
            hidden = model.decode(target, model.encode(source, visible), visible)
        chosen = torch.Generator("cuda").manual_seed(6)
        loss = (hidden.float() * torch.randn(hidden.shape, generator=chosen, device="cuda")).mean()
        return list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))

    train_with(None)
    expected = [gradients(*batch) for batch in batches]
    exact = [gradients(*batch, exact=True) for batch in batches]
    assert not used
    train_with(training_table(["attention"]))
    if compiled:
        monkeypatch.setattr(KernelTable, "find", real)
        for layer in [*model.encoder.layers, *model.decoder.layers]:
            layer.compile(dynamic=True, fullgraph=True)
    else:
        used.clear()
    # A compiled layer rounds at other places than an eager one, whoever attends: each may be as far from the truth as
    # the other (6 to 10 % of a gradient here, by bf16 alone), and so as far from each other.
    for batch, before, truth in zip(batches, expected, exact, strict=True):
        for found, known, true in zip(gradients(*batch), before, truth, strict=True):
            if known is not None:
                assert (found - true).norm() <= 2 * (known - true).norm() + 0.02 * true.norm() + 1e-6
    assert compiled or len([kernel for kernel in used if kernel]) == 6 * len(batches)


# --- elsewhere -------------------------------------------------------------------------------------------------------


def test_training_on_a_cpu_leaves_the_kernels_alone() -> None:
    model = Transformer(
        TransformerOptions(vocabulary=20, width=64, heads=2, feed_forward=64, encoder_layers=1, decoder_layers=1)
    )
    ids = torch.randint(5, 20, (2, 6))
    known = set(sys.modules)
    model.decode(ids, model.encode(ids, None), None).sum().backward()
    assert not {name for name in set(sys.modules) - known if name.startswith("triton") or name.endswith("_kernels")}


def on_cuda(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """A tensor that says it is on a CUDA device; made and used under FakeTensorMode."""
    return torch.empty(shape, dtype=dtype, device="cuda:0")


def test_what_is_served() -> None:
    table = KernelTable(TRAINING)

    def serves(packed: Tensor, head: int, queries: int, keys: int, mask: Tensor | None) -> bool:
        rows, _, width = packed.shape
        heads = width // 3 // head
        asking, there = packed.new_empty(rows, queries, heads * head), packed.new_empty(rows, heads, keys, head)
        across = table.find("attention", asking, there, there, mask, heads) is not None
        if queries == keys:
            alone = packed.new_empty(rows, queries, 3 * heads * head)
            assert (table.find("self_attention", alone, heads, mask) is not None) == across
        assert table.find("attention", asking, there, there, mask, heads, 0.0, 1.0) is None  # scores are not scaled
        with torch.no_grad():
            assert table.find("attention", asking, there, there, mask, heads) is None  # not training
        return across

    padding = torch.bool
    with FakeTensorMode():
        packed = on_cuda(4, 128, 3 * 512)
        assert serves(packed, 64, 128, 128, None)
        assert serves(packed.half(), 32, 128, 128, None)
        assert serves(packed, 64, 128, 128, on_cuda(4, 1, 1, 128, dtype=padding))
        assert serves(packed, 64, 128, 128, on_cuda(4, 1, 128, 128, dtype=padding))
        assert serves(packed, 64, 128, 128, on_cuda(1, 1, 128, 128, dtype=padding))
        assert not serves(packed, 64, 128, 128, on_cuda(4, 8, 128, 128, dtype=padding))
        assert not serves(packed, 64, 128, 128, on_cuda(2, 1, 1, 128, dtype=padding))
        assert not serves(packed, 64, 128, 128, on_cuda(4, 1, 1, 1, dtype=padding))
        assert not serves(packed, 64, 128, 128, on_cuda(128, 128, dtype=padding))
        assert not serves(packed, 64, 128, 128, on_cuda(4, 1, 1, 128))
        assert not serves(packed, 64, 129, 128, None)
        assert not serves(packed, 64, 128, 129, None)
        assert not serves(packed, 48, 128, 128, None)
        assert not serves(packed.float(), 64, 128, 128, None)
        assert not serves(on_cuda(0, 128, 3 * 512), 64, 128, 128, None)
        assert not serves(torch.empty(4, 128, 3 * 512, dtype=torch.bfloat16), 64, 128, 128, None)


def test_shapes_are_known_without_a_device() -> None:
    """What torch.compile is told: the operators' results and gradients, of the right shape and type."""
    with FakeTensorMode():
        packed = torch.empty(3, 7, 3 * 128, dtype=torch.bfloat16, requires_grad=True)
        mixed = short_attention.self_attention(packed, 2, None, True, 0.0)
        assert mixed.shape == (3, 7, 128)
        assert mixed.dtype == torch.bfloat16
        memory = torch.empty(3, 5, 256, dtype=torch.bfloat16, requires_grad=True)
        keys, values = (part.unflatten(-1, (2, 64)).transpose(1, 2) for part in memory.chunk(2, dim=-1))
        crossed = short_attention.cross_attention(mixed, keys, values, None, 2)
        assert crossed.shape == (3, 7, 128)
        crossed.sum().backward()
        assert packed.grad.shape == packed.shape
        assert memory.grad.shape == memory.shape
