"""Random steps by kernels of our own and by the tensor code they stand for: where they differ, if anywhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from longstride.contract import DEFAULT_IDS, EOS, Limits, SpecialIds
from longstride.search.beam import Beam, BeamState, Search
from longstride.search.candidates import best_words
from longstride.search.continuations import DEAD, SlotScores
from longstride.search.kernels import FusedBeam
from longstride.systems.interleaved.greedy import Rows
from longstride.systems.interleaved.model import Interleaving
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.step import _run
from longstride.verification.acceptance import forbidden_ids

TOLERANCE = 1e-4
"""For log-probabilities: sums are made in another order."""


@torch.inference_mode()
def beam_steps(
    search: Search,
    limits: Limits,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
    sentences: int = 2,
    vocabulary: int = 40,
    longest: int = 8,
    steps: int = 6,
    lined: bool = True,
) -> str:
    """Random steps by the kernels and by tensor code: what differs, in a word or two; empty where nothing does.

    New sentences come into slots whose searches have ended. What nobody looks at again is not compared. `lined`: an
    indirection says where pasts lie, of bundles too.
    """
    width, step, columns = search.width, search.step, longest + search.step
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = (BeamState.empty(sentences, width, columns, device) for _ in range(2))
    forbidden = forbidden_ids(limits, device, SpecialIds(eos=search.eos))
    beam, fused = Beam(search, columns, device), FusedBeam(ours, search, forbidden, vocabulary, ours.finished.clone())
    no_words = torch.cat([forbidden, torch.tensor([search.eos], device=device)])
    first = width * torch.arange(sentences, device=device)[:, None]
    indirection = torch.zeros(sentences * width, columns + step, dtype=torch.int32, device=device)
    expected = indirection.clone()
    for _ in range(steps):
        empty = (theirs.done.cpu() & (torch.rand(sentences, generator=generator) < 0.7)).nonzero()[:, 0]
        most = torch.randint(max(1, limits.min_length), longest + 1, (len(empty),), generator=generator)
        for state in (ours, theirs):
            state.open(empty.to(device), most.to(device))
        start = torch.where(theirs.done, 0, theirs.length).repeat_interleave(width)
        if not torch.equal(fused.start, start):
            return "starts"
        logits = 2 * torch.randn(sentences * width, step, vocabulary, generator=generator)
        logits[..., search.eos] += 2  # so that searches end by themselves, too
        logits = logits.to(device, dtype)
        found = best_words(logits, no_words, width, search.eos)
        shape = (sentences, width, step, -1)
        scores = SlotScores(found[0].view(shape), found[1].view(shape), found[2].view(shape[:3]))
        active = ~theirs.done
        parents, last = beam.advance(theirs, scores)
        rows = (first + parents).view(-1)
        written = start[:, None] + torch.arange(step, device=device)
        expected = expected[rows].scatter(1, written, rows[:, None].int().expand_as(written))
        if step == 1:
            took_part = fused.advance_words(logits, None, indirection)
        else:
            from_rows, took_part = fused.advance_bundles(fused.best_words(logits), indirection if lined else None)
        alive = theirs.live > DEAD
        seen = alive.view(-1, 1) & (torch.arange(indirection.shape[1], device=device) <= written[:, -1:])
        if wrong := differing(ours, theirs):
            return wrong
        if not torch.equal(took_part, active) or not torch.equal(fused.last[alive], last[alive]):
            return "newest words"
        if step > 1 and not torch.equal(from_rows[alive.view(-1)], rows[alive.view(-1)]):
            return "parents"
        if (step == 1 or lined) and not torch.equal(indirection * seen, expected * seen):
            return "indirections"
        if not torch.allclose(fused.scores, beam.scores(theirs), rtol=0, atol=TOLERANCE):
            return "scores"
    return ""


def differing(ours: BeamState, theirs: BeamState) -> str:
    """Where two states differ, in a word or two; what nobody looks at again is not compared."""
    for name in ("length", "finished_length", "done"):
        if not torch.equal(getattr(ours, name), getattr(theirs, name)):
            return name.replace("_", " ")
    for name in ("live", "finished"):
        if not torch.allclose(getattr(ours, name), getattr(theirs, name), rtol=0, atol=TOLERANCE):
            return f"{name} scores"
    columns = torch.arange(ours.words.shape[2], device=ours.words.device)
    live = (columns < ours.length[:, None, None]) & (theirs.live > DEAD)[..., None]
    ended = (columns < ours.finished_length[..., None]) & (theirs.finished > DEAD)[..., None]
    if not torch.equal(ours.words * live, theirs.words * live):
        return "words"
    return "" if torch.equal(ours.finished_words * ended, theirs.finished_words * ended) else "finished words"


@torch.inference_mode()
def interleaved_steps(
    options: InterleavingOptions, device: torch.device, dtype: torch.dtype, count_dropped: bool = False, seed: int = 0
) -> str:
    """Random steps by the kernels and by the tensor code: what differs, in a word; empty where nothing does."""
    from longstride.ops.cuda.interleaved_step import lay_out

    generator, count, words = torch.Generator().manual_seed(seed), 5, 30
    step, width, shape = options.step, options.width, (count, options.step)

    def integers(low: int, high: int, *size: int) -> Tensor:
        return torch.randint(low, high, size, generator=generator).to(device)

    interleaving = Interleaving(options).to(device, dtype)
    tokens, places = (torch.randn(n, width, generator=generator).to(device, dtype) for n in (words, 4 * step))
    ids, start, scale = integers(0, words, *shape), step * torch.tensor([0, 2, 0, 3, 1], device=device), width**0.5
    found, at = lay_out(ids, start, tokens, scale, places, options.start != "symbol", interleaving.starts)
    slots = start[:, None] + torch.arange(step, device=device)
    if not torch.equal(at, slots):
        return "slots"
    if not torch.equal(found, interleaving.begin(tokens[ids] * scale, slots) + places[slots]):
        return "inputs"

    ours, theirs = (Rows(count, 10 * step, options, DEFAULT_IDS, device) for _ in range(2))
    filled, done = step * integers(0, 2, count), integers(0, 4, count) == 0
    for rows in (ours, theirs):
        for buffer, value in ((rows.filled, filled), (rows.length, filled), (rows.done, done)):
            buffer.copy_(value)
        rows.start.copy_(torch.where(done, 0, filled))
    # What logits are made of is left out.
    nothing: list[Any] = [None] * 3
    model: Any = SimpleNamespace(
        options=options, interleaving=SimpleNamespace(link=None), model=SimpleNamespace(special=DEFAULT_IDS)
    )
    longest, forbidden = torch.full((count,), 10 * step, device=device), torch.arange(0, device=device)
    for _ in range(3):
        logits = torch.randn(*shape, words, generator=generator).to(device)
        logits[..., EOS] += 10 * (integers(0, 2 * step, *shape) == 0)
        model.step_logits = lambda *_, logits=logits: (logits, None)
        right, top = _run(
            model, 0, count_dropped, theirs.state, *nothing, longest, forbidden, theirs.anchors, theirs.behind
        )
        reading = top, logits.gather(-1, top[..., None])[..., 0], logits.logsumexp(dim=-1)
        mine = ours.commit_fused(reading, count_dropped)
        kept = torch.arange(ours.words.shape[1], device=device) < theirs.filled[:, None]
        pairs = {
            name: (getattr(ours, name), getattr(theirs, name)) for name in ("filled", "length", "done", "start", "ids")
        }
        pairs |= {name: (getattr(mine, name), getattr(right, name)) for name in ("active", "written")}
        pairs["positions"] = (mine.position * right.written, right.position * right.written)
        pairs["words"] = (ours.words * kept, theirs.words * kept)
        for name, (one, other) in pairs.items():
            if not torch.equal(one, other):
                return name
        if float((ours.log_probability - theirs.log_probability).abs().max()) > TOLERANCE:
            return "log-probabilities"
    return ""
