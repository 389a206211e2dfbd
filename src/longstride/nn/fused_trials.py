"""Whether kernels of our own give here what they should: each is tried by itself before it is used.

Compares them with plain arithmetic in float64 (products with PyTorch's own, bit for bit) on random numbers, for the
sizes that a module has. Attention must also give a slot the same bits in a step of its own and in a wide one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, partial

import torch
from torch import Tensor, nn

from longstride.nn import overlap, overlap_trial
from longstride.nn.decode_attention import extend, read
from longstride.nn.decode_attention_trial import lines
from longstride.nn.decode_product import product
from longstride.nn.fused import KERNELS, Fusible, Kernel, add_norm, embed, linear_relu, why_not_here
from longstride.nn.link import best_of_states, followed, walked
from longstride.nn.source_attention import attended as attended_to_itself
from longstride.ops import best_of_classes

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
"""How far results may be from what they should be, as a share of it or, below one, in all: a few last bits"""
ROWS, STEP, SLOTS = 3, 26, 112
"""Of a trial of attention: more than one tile of queries and of keys, neither of them full."""

Random = Callable[..., Tensor]


def serves(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there is anything to try: a CUDA device, and numbers that the kernels are written for."""
    return device.type == "cuda" and dtype in TOLERANCE


def switch(
    module: nn.Module,
    device: torch.device,
    dtype: torch.dtype,
    names: Collection[str] = tuple(KERNELS),
) -> dict[str, list[str]]:
    """Have the parts of a module use those of the named kernels that work here. -> why -> who is left out

    Whether kernels overlap, all modules share: whoever names any kernel decides it anew.
    """
    left_out: dict[str, list[str]] = {}
    decides = bool(names) and serves(device, dtype)
    if decides:
        overlap.switch(False)  # a trial writes the weights that its kernels read
    for part in module.modules():
        if not isinstance(part, Fusible):
            continue
        used = set()
        for kernel in part.kernels():
            if kernel.name not in names or not serves(device, dtype):
                continue
            against = why_not(kernel, device, dtype)
            if not against:
                used.add(kernel.name)
            elif kernel.name not in left_out.setdefault(against, []):
                left_out[against].append(kernel.name)
        part.use(used)
    if decides:
        against = why_not(Kernel("overlap", ()), device, dtype) if "overlap" in names else "nobody asked for it"
        if against and "overlap" in names:
            left_out.setdefault(against, []).append("overlap")
        if device.type == "cuda" and torch.cuda.is_available():
            torch.cuda.synchronize(device)  # weights are read without waiting for whoever wrote them
        overlap.switch(not against)
    return left_out


@cache
def why_not(kernel: Kernel, device: torch.device, dtype: torch.dtype) -> str:
    """What keeps a kernel from being used here, in a few words; empty where nothing does."""

    def tried() -> str:
        worst = trial(kernel, device, dtype)
        limit = 0.0 if kernel.name == "relu" else TOLERANCE[dtype]
        return "" if worst <= limit else f"its results are {worst:.1g} away from what they should be"

    return why_not_here(device, dtype, tried, triton=kernel.name != "relu")


@torch.inference_mode()
def trial(kernel: Kernel, device: torch.device, dtype: torch.dtype) -> float:
    """The largest difference from what it should give."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    return (kernel.trial or _TRIALS[kernel.name])(random, *kernel.sizes)


def _norm(random: Random, width: int) -> float:
    x, added = random(7, width), random(7, width)
    norm = nn.LayerNorm(width).to(x.device, x.dtype)
    norm.weight.copy_(random(width))
    norm.bias.copy_(random(width))
    return apart(add_norm(x, added, norm), norm.double()((x + added).double()))


def _relu(random: Random, inputs: int, outputs: int) -> float:
    linear = _linear(random, inputs, outputs)
    worst = 0.0
    for slots in (1, 2, 5, 8, 10, STEP, 32):
        x = random(1, slots, inputs)
        worst = max(worst, apart(linear_relu(x, linear), linear(x).relu()))
    return worst


def _product(random: Random, inputs: int, outputs: int) -> float:
    linear, x = _linear(random, inputs, outputs), random(1, STEP, inputs)
    worst = 0.0
    for relu in (False, True):
        found = product(x, linear, relu)
        for one in range(STEP):
            if not torch.equal(product(x[:, one : one + 1], linear, relu), found[:, one : one + 1]):
                raise ArithmeticError("a slot's numbers depend on the step's width")
        exact = x.double() @ linear.weight.double().t() + linear.bias.double()
        worst = max(worst, apart(found, exact.relu() if relu else exact))
    return worst


def _embed(random: Random, width: int) -> float:
    count, last, scale = 9, 6, width**0.5
    tokens, places = random(count, width), random(4 + last, width)
    ids = torch.arange(3 * STEP).remainder(count).view(3, STEP).to(tokens.device)
    start = torch.tensor([0, 2, last]).to(tokens.device)
    x, slots = embed(ids, start, tokens, scale, (places, 3), last)
    expected = start[:, None] + torch.arange(STEP, device=start.device)
    if not torch.equal(slots, expected):
        raise ArithmeticError("it counts slots otherwise")
    from_first, _ = embed(ids, None, tokens, scale, (places, 3), last)
    if not torch.equal(from_first[0], x[0]):
        raise ArithmeticError("slots from 0 on are not those from the first on")
    return apart(x, places[3 + expected.clamp(max=last)].double() + scale * tokens[ids].double())


def _linear(random: Random, inputs: int, outputs: int) -> nn.Linear:
    weight = random(outputs, inputs)
    linear = nn.Linear(inputs, outputs).to(weight.device, weight.dtype)
    linear.weight.copy_(weight * inputs**-0.5)
    linear.bias.copy_(random(outputs))
    return linear


def _step(random: Random, head: int) -> float:
    heads = 2
    packed, start = random(ROWS, STEP, 3 * heads * head), torch.tensor([0, 37, SLOTS - STEP])
    slots = (start[:, None] + torch.arange(STEP)).to(packed.device)
    filled = (torch.arange(SLOTS) < start[:, None])[:, None, :, None].to(packed.device)
    before = [random(ROWS, heads, SLOTS, head).masked_fill(~filled, float("nan")) for _ in range(2)]
    wide, narrow = ([old.clone() for old in before] for _ in range(2))
    found = extend(packed, slots, wide[0], wide[1])
    for one in range(STEP):
        alone = extend(packed[:, one : one + 1], slots[:, one : one + 1], narrow[0], narrow[1])
        if not torch.equal(alone, found[:, one : one + 1]):
            raise ArithmeticError("a slot's numbers depend on the step's width")
    queries, *new = packed.view(ROWS, STEP, 3, heads, head).permute(2, 0, 3, 1, 4)
    index = slots[:, None, :, None].expand_as(queries)
    expected = [old.nan_to_num(0.0).scatter(2, index, fresh) for old, fresh in zip(before, new, strict=True)]
    for written, right in zip(wide, expected, strict=True):
        if not torch.equal(written.nan_to_num(0.0), right):
            raise ArithmeticError("it leaves other keys or values in the cache than it was given")
    visible = torch.arange(SLOTS, device=slots.device) <= slots[:, None, :, None]
    return apart(found, attended(queries, expected[0], expected[1], visible))


def _read(random: Random, head: int, each: bool) -> float:
    heads, count = 2, SLOTS - 16
    queries, keys, values = random(ROWS, STEP, heads * head), *(random(ROWS, heads, count, head) for _ in range(2))
    visible = (random(ROWS, 1, STEP if each else 1, count) > 0) & (torch.arange(count) < 80).to(queries.device)
    visible[..., 70] = True
    added = torch.zeros_like(visible, dtype=queries.dtype).masked_fill(~visible, float("-inf"))
    keys[:, :, 80:], values[:, :, 80:] = float("nan"), float("nan")
    found = read(queries, keys, values, added, each)
    for one in range(STEP):
        mine = added[:, :, one : one + 1] if each else added
        if not torch.equal(read(queries[:, one : one + 1], keys, values, mine, each), found[:, one : one + 1]):
            raise ArithmeticError("a slot's numbers depend on the step's width")
    if not torch.equal(read(queries, keys[:, :, :80], values[:, :, :80], added[..., :80], each), found):
        raise ArithmeticError("a slot's numbers depend on what it does not see")
    split = queries.view(ROWS, STEP, heads, head).transpose(1, 2)
    return apart(found, attended(split, keys.nan_to_num(0.0), values.nan_to_num(0.0), visible))


def _source_self(random: Random, head: int) -> float:
    heads, length = 2, 80
    packed = random(ROWS, length, 3 * heads * head)
    lengths = torch.tensor([length, 17, 66])
    visible = (torch.arange(length) < lengths[:, None]).to(packed.device)
    packed[..., heads * head :].masked_fill_(~visible[..., None], float("nan"))  # keys and values that nobody sees
    found = attended_to_itself(packed, heads, visible[:, None, None])
    for row, kept in enumerate(lengths.tolist()):
        alone = attended_to_itself(packed[row : row + 1, :kept], heads, None)
        if not torch.equal(alone[0], found[row, :kept]):
            raise ArithmeticError("a row's numbers depend on other rows or on padding")
    queries, keys, values = packed.nan_to_num(0.0).view(ROWS, length, 3, heads, head).permute(2, 0, 3, 1, 4)
    right = attended(queries, keys, values, visible[:, None, None])
    return apart(found[visible], right[visible])


def _link(random: Random, vocabulary: int, rank: int, candidates: int, width: int) -> float:
    classes = torch.arange(candidates)
    turns = (vocabulary - classes + candidates - 1) // candidates
    ids = classes + candidates * (random(ROWS, 1 + STEP, candidates).double().cpu().abs() % 1 * turns).long()
    ids, best = ids.to(random(1).device), 2 + random(ROWS, 1 + STEP, candidates).abs()
    logits = random(ROWS, 1 + STEP, vocabulary).clamp(max=1).scatter(2, ids, best)[:, 1:]  # no ties within a class
    ids, best, gate = ids[:, 1:], best[:, 1:], random(ROWS, STEP, rank)
    before, after = (random(vocabulary, rank) for _ in range(2))
    newest = ids[:, 0, 0]
    previous, asked = walked(logits, gate, newest, before, after, candidates)
    chosen = ids[:, :-1] == previous[:, 1:, None]
    if not (torch.equal(previous[:, 0], newest) and chosen.any(dim=2).all()):
        raise ArithmeticError("it chooses what is no candidate")
    scores = (best.double() + (after[ids].double() @ asked.double()[..., None])[..., 0])[:, :-1]
    expected = before[previous].double() * (1 + gate.double())
    tokens = followed(logits, gate, newest, before, after, candidates)
    return max(
        apart(asked, expected),
        apart(scores[chosen], scores.amax(dim=2).flatten()),
        apart(tokens[:, :-1], previous[:, 1:]),
        _link_states(random, vocabulary, rank, candidates, width),
    )


def _link_states(random: Random, vocabulary: int, rank: int, candidates: int, width: int) -> float:
    hidden = random(STEP, width)
    weight, gate_weight = (random(size, width) * width**-0.5 for size in (vocabulary, rank))
    values, ids, gate = best_of_states(hidden, weight, gate_weight, candidates)
    logits = hidden.double() @ weight.double().t()
    best, _ = best_of_classes(logits, candidates)
    value, chunk = values.max(dim=1)
    found = ids.gather(1, chunk[:, None])[:, 0].long()
    if not torch.equal(found % candidates, torch.arange(candidates, device=ids.device).expand_as(found)):
        raise ArithmeticError("it takes a candidate for one of another class")
    exact = hidden.double() @ gate_weight.double().t()
    return max(apart(value, best), apart(logits.gather(1, found), best), apart(gate, exact))


def attended(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """The slow twin, in float64: [rows, heads, queries or keys, head] each -> [rows, queries, width]"""
    scores = queries.double() @ keys.double().transpose(2, 3) * queries.shape[-1] ** -0.5
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    mixed: Tensor = weights @ values.double()
    return mixed.transpose(1, 2).flatten(2)


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference; NaN counts as the largest there is."""
    apart = (found.double() - expected.double()).abs() / expected.double().abs().clamp(min=1)
    return float(apart.nan_to_num(float("inf")).max())


_TRIALS: dict[str, Callable[..., float]] = {
    "norm": _norm,
    "relu": _relu,
    "step": _step,
    "lines": lines,
    "mask": partial(_read, each=True),
    "source": partial(_read, each=False),
    "source-self": _source_self,
    "product": _product,
    "embed": _embed,
    "link": _link,
    "overlap": overlap_trial.trial,
}
