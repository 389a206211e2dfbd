"""Tiny random drafters, and the drafter's slow twin: no cache, no batch, no table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from longstride.contract import EOS, MASK, START, Limits
from longstride.nn.transformer import Transformer
from longstride.systems.draft_verify.model import Drafter, verifier_states
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.verification import session
from tests.decoding.oracles import allowed, longest_output
from tests.models import seeded
from tests.nn.test_link import slow_chain
from tests.nn.test_link import slow_draft as link_draft

KINDS = st.fixed_dictionaries(
    {
        "encoder": st.sampled_from(
            [
                {"encoder": "own"},
                {"encoder": "shared", "verifier_width": 16},
                {"encoder": "partial", "shared_layers": 1, "verifier_width": 16},
                {"encoder": "partial", "verifier_width": 16},
            ]
        ),
        "prefix": st.sampled_from(["causal", "full"]),
        "positions": st.sampled_from(["learned", "sinusoidal"]),
        "add_positions": st.sampled_from(["every", "first"]),
        "norm": st.sampled_from(["post", "pre"]),
        "soft_copy": st.booleans(),
        "width": st.sampled_from([8, 16]),
        "link": st.sampled_from([0, 3]),
    }
)
"""What a drafter can be, `encoder` with all that belongs to it."""


@contextmanager
def picked(seed: int) -> Iterator[None]:
    """With `adaptive` a length by the seed, tried once, instead of the fastest after a dozen trials.

    So drafts of every length are met, the same on every machine.
    """

    def pick(lengths: Sequence[int], run: Callable[[int], object]) -> dict[int, float]:
        length = lengths[seed % len(lengths)]
        run(length)
        return {length: 1.0}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "timed", pick)
        patch.setattr(session, "TIMES", -1)  # at once, however few sentences there are
        yield


def tiny_drafter(seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> Drafter:
    """A random drafter whose choices vary with everything it reads."""
    settings: dict[str, Any] = {
        "vocabulary": 11,
        "block": 4,
        "width": 16,
        "feed_forward": 32,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "longest": 64,
        "dropout": 0.0,
        **changes,
    }
    encoder = settings.get("encoder")
    settings |= encoder if isinstance(encoder, dict) else {}
    with seeded(seed):
        model = Drafter(DrafterOptions(**settings))
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 0.6)
    return model.to(dtype).eval().requires_grad_(False)


def slow_logits(drafter: Drafter, verifier: Transformer, source: list[int], prefix: list[int]) -> Any:
    """[trained block, vocabulary] by one whole pass over the canvas of one sentence."""
    logits, hidden = slow_pass(drafter, verifier, source, prefix)
    if drafter.link is None:
        return logits
    return slow_chain(drafter.link, logits, hidden, prefix[-1] if prefix else START)


def slow_pass(drafter: Drafter, verifier: Transformer, source: list[int], prefix: list[int]) -> tuple[Any, Any]:
    """The same of each slot by itself, and states [trained block, width]."""
    ids, block = torch.tensor([source]), drafter.options.block
    states = None if drafter.options.encoder == "own" else verifier_states(verifier, drafter.options, ids, None)
    canvas = torch.tensor([[*prefix, *[MASK] * block]])
    hidden = drafter(canvas, torch.tensor([len(prefix)]), block, ids, None, states)
    return drafter.logits(hidden)[0], hidden[0]


def slow_proposal(
    drafter: Drafter, verifier: Transformer, source: list[int], prefix: list[int], block: int, limits: Limits
) -> list[int]:
    """What is proposed to a verifier: with a link the best chain, whatever the limits are. All ids are candidates."""
    if drafter.link is None:
        return slow_draft(drafter, verifier, source, prefix, block, limits)
    logits, hidden = slow_pass(drafter, verifier, source, prefix)
    return link_draft(drafter.link, logits, hidden, prefix[-1] if prefix else START)[:block]


def slow_draft(
    drafter: Drafter, verifier: Transformer, source: list[int], prefix: list[int], block: int, limits: Limits
) -> list[int]:
    """The most likely token of each slot that may stand there."""
    logits = slow_logits(drafter, verifier, source, prefix)[:block]
    found = []
    for place, scores in enumerate(logits):
        choices = allowed(len(prefix) + place, longest_output(source, limits), limits, len(scores))
        found.append(max(choices, key=lambda token: float(scores[token])))
    return found


def slow_drafter_alone(
    drafter: Drafter, verifier: Transformer, source: list[int], block: int, limits: Limits
) -> list[int]:
    tokens: list[int] = []
    while EOS not in tokens:
        tokens += slow_draft(drafter, verifier, source, tokens, block, limits)
    return tokens[: tokens.index(EOS)]
