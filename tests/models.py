"""Tiny random models for property tests: small enough to enumerate, wild enough to disagree with everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from longstride.contract import EOS, Source
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer


def tiny_options(**changes: object) -> TransformerOptions:
    settings: dict[str, object] = {
        "vocabulary": 11,
        "width": 16,
        "feed_forward": 32,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "longest": 64,
        "dropout": 0.0,
    }
    return TransformerOptions(**{**settings, **changes})  # type: ignore[arg-type]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What is drawn on the processor begins at a seed, and goes on afterwards as if nothing had been drawn.

    `torch.manual_seed` would also note for three other kinds of device, each time with the whole stack, what to do once
    they are there.
    """
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        yield


def tiny_model(
    seed: int = 0, dtype: torch.dtype = torch.float64, sharpness: float = 3.0, **changes: object
) -> Transformer:
    """A random model whose next-token choices vary with everything it reads."""
    with seeded(seed):
        model = Transformer(tiny_options(**changes))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 0.5)
                if name == "target_embedding.weight":
                    weight.mul_(sharpness)
    return model.to(dtype).eval().requires_grad_(False)


def random_source(rows: int, longest: int, vocabulary: int = 11, seed: int = 0) -> Source:
    """Ragged sources of 1 to `longest` tokens, each ending in EOS."""
    generator = torch.Generator().manual_seed(seed)
    sentences = []
    for _ in range(rows):
        length = int(torch.randint(0, longest, (1,), generator=generator))
        words = torch.randint(5, vocabulary, (length,), generator=generator).tolist()
        sentences.append([*words, EOS])
    return Source.of(sentences)
