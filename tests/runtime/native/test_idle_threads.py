"""Beside the runtime native PyTorch has nothing to share out: its threads would wait busily, for milliseconds, on the
cores that the next model call needs. Decoding debates took nearly a fifth longer by copies alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import longstride
from longstride.translator import Translator
from tests.runtime.native.harness import needs_library

SHARED = 32_768
"""Numbers from which on PyTorch shares out what it does with each of them"""
LONG = (
    "We all know that clean drinking water, which so many people in poorer regions of the world have to do without, "
    "is not a luxury for a few, but a right of every citizen of our Union and of everybody who comes to live here.",
    "The Commission must now submit a proposal that protects small farmers and consumers, that costs no more than "
    "what Parliament agreed to in the spring, and that the Member States can put into practice this year.",
)
SHORT = ("Good morning!", "I would like to thank the rapporteur for her excellent work.", "She was very tired.")

pytestmark = needs_library()


class Large(TorchDispatchMode):
    """Counts what PyTorch does with many numbers, by name; views of them are nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count it and do it."""
        result = func(*args, **(kwargs or {}))
        made, given = [list(_tensors(some)) for some in (result, args)]
        there = {tensor.untyped_storage().data_ptr() for tensor in given}
        new = [tensor for tensor in made if tensor.untyped_storage().data_ptr() not in there]
        written = [tensor for tensor in given[:1] if func._schema.is_mutable]
        if not func._schema.name.startswith("aten::empty") and any(prod(one.shape) >= SHARED for one in new + written):
            self.found[func._schema.name] += 1
        return result


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, tuple | list):
        for one in given:
            yield from _tensors(one)


@pytest.fixture(scope="module")
def bundled() -> Translator:
    return longstride.load(device="cpu", runtime="native")


@pytest.mark.parametrize("lines", [LONG[:1], (*LONG, *SHORT) * 4], ids=["alone", "side by side"])
@pytest.mark.parametrize("decoder", ["greedy", "blockwise", "draft-verify", "interleaved"])
def test_no_thread_of_pytorchs_is_woken(bundled: Translator, decoder: str, lines: tuple[str, ...]) -> None:
    bundled.translate(list(lines), decoder)
    with Large() as large:
        bundled.translate(list(lines), decoder)
    assert not large.found
