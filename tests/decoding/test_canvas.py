"""What a drafter's decoder is given, by one kernel and by tensor code: on a CUDA device, or in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.ops.kernels import TYPES, kernels_of
from longstride.systems.draft_verify import passes
from longstride.systems.draft_verify.canvas import lay_out, lay_out_bare, lay_out_fused
from longstride.systems.draft_verify.model import Drafter, newest_of
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.systems.draft_verify.passes import Own
from longstride.systems.draft_verify.programs import draft
from tests.decoding.drafters import tiny_drafter
from tests.nn.running_kernels import QUICK, few, table_for, where


@pytest.mark.gpu
@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    block=st.integers(1, 6),
    width=st.sampled_from([8, 16, 24]),
    positions=st.sampled_from(["learned", "sinusoidal"]),
    scaled=st.booleans(),
)
def test_one_kernel_lays_out_what_thirty_do(seed, block, width, positions, scaled):
    kind = {"block": block, "width": width, "positions": positions, "scale_embeddings": scaled}
    assert differing(tiny_drafter(**kind).options, where(), torch.float32, seed) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("said", few(["every", "first"]))
@torch.inference_mode()
def test_a_draft_by_kernels_is_as_it_was(said):
    """Positions that later layers are told again go through the kernel that makes norms, too."""
    device = where()
    sizes = {"width": 64, "heads": 4, "feed_forward": 64, "block": 3, "activation": "relu"}
    drafter = tiny_drafter(3, torch.float32, add_positions=said, decoder_layers=3, **sizes).to(device)
    for weight in drafter.parameters():
        weight.mul_(0.3)  # small differences are to stay small
    generator = torch.Generator().manual_seed(0)
    tokens, source = (torch.randint(5, 11, (2, 12), generator=generator).to(device) for _ in range(2))
    length, lengths = torch.tensor([4, 7], device=device), torch.tensor([9, 12], device=device)
    memory = drafter.encode_source(source, lengths, None)
    masked = drafter.mask_slots(source, lengths, 16)
    found = []
    for own in (False, True):
        program, cache = draft(drafter, passes.of(drafter, Own(own, own))), drafter.new_cache(2, 19)
        with kernels_of(table_for(device, QUICK) if own else None):
            found.append([program.function(tokens, length + on, 8, 3, masked, cache, memory) for on in (0, 2)])
    for plain, own in zip(*found, strict=True):
        torch.testing.assert_close(own, plain, atol=1e-3, rtol=1e-3)


@pytest.mark.gpu
@torch.inference_mode()
def test_a_chain_by_kernels_is_the_plain_one_and_lies_where_it_is_wanted():
    device = where()
    sizes = {"width": 64, "heads": 4, "feed_forward": 64, "block": 5, "activation": "relu", "link": 16}
    drafter = tiny_drafter(5, torch.float32, add_positions="first", **sizes).to(device)
    generator = torch.Generator().manual_seed(0)
    tokens, source = (torch.randint(5, 11, (3, 16), generator=generator).to(device) for _ in range(2))
    length, lengths = torch.tensor([0, 4, 9], device=device), torch.tensor([9, 12, 16], device=device)
    memory = drafter.encode_source(source, lengths, None)
    masked = drafter.mask_slots(source, lengths, 20)
    found = []
    for own in (False, True):
        run, cache = passes.of(drafter, Own(own, own)), drafter.new_cache(3, 25)
        room = torch.full((3, 6), -1, device=device)
        for asked in (5, 3):
            given = (tokens, length + 5 - asked)
            with kernels_of(table_for(device, QUICK) if own else None):
                states = run(*given, 6, asked, masked, cache, memory)
                ids = drafter.followed(states.hidden, *given, states.newest, room[:, 1 : asked + 1])
            assert ids.data_ptr() == room[:, 1:].data_ptr()
            found.append(room.tolist())
    assert found[:2] == found[2:]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_so_it_is_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    options = DrafterOptions(vocabulary=40, block=3, width=48, feed_forward=96, heads=2)
    assert differing(options, torch.device("cuda", 0), dtype) == ""


@torch.inference_mode()
def differing(options: DrafterOptions, device: torch.device, dtype: torch.dtype, seed: int = 0) -> str:
    """Which tensors of a random canvas the kernel lays out otherwise; empty where none."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        drafter = Drafter(options).to(device, dtype).eval()
    rows, columns, window, canvas = 3, 20, options.block + 1, 22
    tokens = torch.randint(0, options.vocabulary, (rows, columns + 1), generator=generator).to(device)[:, :columns]
    length = torch.tensor([0, 2, columns - options.block]).to(device)
    mask_slots = torch.randn(rows, canvas, options.width, generator=generator).to(device, dtype)
    given = (drafter, tokens, length, window, mask_slots, 48)
    found, expected = lay_out_fused(*given), lay_out(*given, torch.full_like(length, canvas))
    if found.newest is None or not torch.equal(found.newest, newest_of(tokens, length, drafter.special.start)):
        return "newest tokens"
    x, place, newest = lay_out_bare(*given[:-1])
    if not (torch.equal(x, expected.x) and torch.equal(newest, found.newest)):
        return "bare slots"
    if place is not None and not torch.equal(place, expected.place):
        return "bare places"
    names = ("slots", "mask", "place", "x")
    return ", ".join(name for name in names if not torch.equal(getattr(found, name), getattr(expected, name)))
