"""What a drafter's decoder is given, by one kernel and by tensor code: on a CUDA device, or in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.ops.kernels import TYPES, kernels_of
from longstride.systems.draft_verify.canvas import differing, why_not
from longstride.systems.draft_verify.passes import Own
from longstride.systems.draft_verify.programs import draft, follow
from tests.decoding.drafters import tiny_drafter
from tests.nn.running_kernels import table_for, where


@pytest.mark.gpu
@settings(max_examples=12, deadline=None)
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
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
@pytest.mark.parametrize("said", ["every", "first"])
@torch.inference_mode()
def test_a_draft_by_kernels_is_as_it_was(said):
    """Positions that later layers are told again go through the kernel that makes norms, too."""
    device = where(loops=True)
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
        program, cache = draft(drafter, Own(own, own)), drafter.new_cache(2, 19)
        with kernels_of(table_for(device) if own else None):
            found.append([program.function(tokens, length + on, 8, 3, masked, cache, memory) for on in (0, 2)])
    for plain, own in zip(*found, strict=True):
        torch.testing.assert_close(own, plain, atol=1e-3, rtol=1e-3)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
@torch.inference_mode()
def test_a_chain_by_kernels_is_the_plain_one_and_lies_where_it_is_wanted():
    device = where(loops=True)
    sizes = {"width": 64, "heads": 4, "feed_forward": 64, "block": 5, "activation": "relu", "link": 16}
    drafter = tiny_drafter(5, torch.float32, add_positions="first", **sizes).to(device)
    generator = torch.Generator().manual_seed(0)
    tokens, source = (torch.randint(5, 11, (3, 16), generator=generator).to(device) for _ in range(2))
    length, lengths = torch.tensor([0, 4, 9], device=device), torch.tensor([9, 12, 16], device=device)
    memory = drafter.encode_source(source, lengths, None)
    masked = drafter.mask_slots(source, lengths, 20)
    found = []
    for own in (False, True):
        program, cache = follow(drafter, Own(own, own)), drafter.new_cache(3, 25)
        room = torch.full((3, 6), -1, device=device)
        for asked in (5, 3):
            given = (tokens, length + 5 - asked, 6, asked, masked, cache, memory, room[:, 1 : asked + 1])
            with kernels_of(table_for(device) if own else None):
                ids = program.function(*given)
            assert ids.data_ptr() == room[:, 1:].data_ptr()
            found.append(room.tolist())
    assert found[:2] == found[2:]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_speaks_against_it_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    assert why_not(torch.device("cuda", 0), dtype) == ""


def test_elsewhere_it_says_why_not():
    assert "expects a CUDA device" in why_not(torch.device("cpu"), torch.float16)
    assert "expects fp32" in why_not(torch.device("cuda", 0), torch.float64)
