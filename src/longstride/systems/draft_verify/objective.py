"""Training the drafter: a random prefix, a block of masks after it, and glancing.

A target of L tokens (EOS counted) is cut at a random prefix of p = L - (int(L·u) + 1) tokens, 0 to L - 1. After it come
always k masks, even past the end, so that the canvas never tells how long the target is; slots past EOS carry no loss.

A target may be cut at several places: with a causal prefix, whose states do not depend on what follows, its tokens are
computed once for all the blocks (:meth:`Drafter.several`).

Glancing (Qian et al., 2021): a first pass without gradients, with dropout, finds the slots the drafter has wrong; then
floor(r·wrong) of the row's valid slots, drawn at random, are revealed, that is read as the true token, and the loss is
taken on the others. r falls along the training. Evaluation neither glances nor reveals; where r is 0 throughout, there
is no first pass.

A drafter with a link (:mod:`longstride.nn.link`) is told the token before each slot, as a draft tells it.

A drafted token is of use only if all before it are right, so that early slots matter more than late ones: `decay` makes
slot i count decay^i.

The loop divides a summed loss by tokens that must be known before the loss is: they are the batch's target tokens. The
loss is the mean over the slots that are left, as in the authors' code, times that number; so are the figures. So the
objective need not know k, which is the drafter's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.contract import (
    DEFAULT_IDS,
    MASK,
    PAD,
    START,
    UNK,
    Batch,
    Loss,
    Objective,
    OptionError,
    Prepared,
    option,
)
from longstride.contract.options import Options
from longstride.nn.transformer import Transformer
from longstride.ops import aligned
from longstride.systems.draft_verify.model import Drafter, reads_whole_encoder, verifier_states


@dataclass(frozen=True)
class DrafterObjectiveOptions(Options):
    """Options of the drafter's training."""

    label_smoothing: float = option(0.1, "Probability spread evenly over the vocabulary.", least=0, below=1)
    glance_first: float = option(
        0.5, "Share of the wrong slots that is revealed at the start of training.", least=0, below=1
    )
    glance_last: float = option(0.3, "The same at its end; in between it moves straight.", least=0, below=1)
    blocks: int = option(
        1,
        "Blocks drafted per target, after so many cuts: with a causal prefix they share what it costs.",
        least=1,
        most=1000,
    )
    decay: float = option(
        1.0, "What a slot counts, times what the slot before it does: below 1, early slots lead.", above=0, most=1
    )
    distance: float = option(
        0.0,
        "Share of the loss that is the distance between the drafter's and the verifier's distributions; the rest is "
        "cross-entropy with the target.",
        least=0,
        most=1,
    )


class DrafterWithVerifier(nn.Module):
    """What is trained: the drafter, beside the frozen verifier whose encoder it may read."""

    def __init__(self, model: Transformer, drafter: Drafter) -> None:
        super().__init__()
        o, d = drafter.options.own_special, DEFAULT_IDS
        if (o.pad, o.start, o.eos, o.mask) != (d.pad, d.start, d.eos, d.mask):
            raise OptionError(
                "Training a drafter for a model whose special ids are not those of our own vocabularies expects ids of "
                "its own (kept), found none."
            )
        self.model = model.requires_grad_(False).eval()
        self.drafter = drafter

    def train(self, mode: bool = True) -> DrafterWithVerifier:
        """The drafter alone changes its mode: the verifier is as it will be when it verifies."""
        super().train(mode)
        self.model.eval()
        return self


def random_prefixes(lengths: Tensor, rng: torch.Generator) -> Tensor:
    """[rows] lengths, EOS counted -> prefixes of 0 to length - 1 tokens, each as likely as the others"""
    masked = (lengths * torch.rand(len(lengths), generator=rng, dtype=torch.float64)).long() + 1
    return lengths - masked.minimum(lengths)


def columns_of(prefix: Tensor, block: int) -> Tensor:
    """[..., block] the slots of the block after each prefix [...]"""
    return prefix[..., None] + torch.arange(block, device=prefix.device)


def cut(target: Tensor, prefix: Tensor, block: int, filled: Tensor) -> Tensor:
    """The canvas [rows, slots]: the prefix [rows] of the target, what stands in the block [rows, block], nothing else.

    What follows the block is never seen.
    """
    slots = torch.arange(aligned(target.shape[1] + block), device=target.device)
    ahead = F.pad(target, (0, len(slots) - target.shape[1]), value=PAD)
    canvas = torch.where(slots < prefix[:, None], ahead, PAD)
    return canvas.scatter(1, columns_of(prefix, block), filled)


def reveal(found: Tensor, wanted: Tensor, chance: Tensor, ratio: Tensor) -> Tensor:
    """[rows, block] bool: which valid slots are revealed, floor(ratio·wrong) per row, those of the least chance.

    found and wanted [rows, block] ids, PAD in `wanted` where a slot does not count; chance [rows, block] in [0, 1).
    """
    valid = wanted != PAD
    wrong = ((found != wanted) & valid).sum(dim=1)
    count = (ratio * wrong).floor().long()
    order = torch.where(valid, chance, 2.0).argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    return valid & (order < count[:, None])


def _own_targets(drafter: Drafter, target: Tensor, lengths: Tensor) -> Tensor:
    """Targets of a batch [rows, longest] in the drafter's own ids, PAD beyond lengths [rows]: with a verifier's ids, 0
    may be a word of its."""
    if drafter.kept_ids is None:
        return target
    return torch.where(ops.real(lengths, target.shape[1]), drafter.own(target), PAD)


class Distance(nn.Module):
    """Total variation, half the sum of |p - q|: the chance that a draft drawn from p would be refused. No weights."""

    compile_unit = True

    def forward(self, logits: Tensor, theirs: Tensor, counted: Tensor) -> Tensor:
        """logits [n, block, own vocabulary], theirs [n, block, own vocabulary] probabilities, counted [n, block] ->
        the sum over all slots"""
        own = logits.float().softmax(dim=-1)
        return (0.5 * (own - theirs).abs().sum(dim=-1) * counted).sum()


def verifier_probabilities(
    model: DrafterWithVerifier, tensors: dict[str, Tensor], columns: Tensor, visible: Tensor | None, memory: Tensor
) -> Tensor:
    """[rows * blocks, block, own vocabulary] what the verifier would say at each slot [rows, blocks, block], given the
    target's tokens before it; ids that the drafter has not kept are left out, and no id is counted twice"""
    verifier, drafter, target = model.model, model.drafter, tensors["target"]
    ids = F.pad(target, (1, 0), value=verifier.special.start)[:, :-1]
    hidden = verifier.decode(ids, memory, visible)
    places = columns.flatten(1).clamp(max=target.shape[1] - 1)
    hidden = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[2])).view(
        -1, columns.shape[2], hidden.shape[2]
    )
    found = verifier.logits(hidden).float().softmax(dim=-1)
    if drafter.kept_ids is None:
        return found
    # One id may be several of the reserved ones (start and eos in NLLB): it is told as that which it is read as.
    read_as = drafter.own(drafter.kept_ids) == torch.arange(len(drafter.kept_ids), device=found.device)
    return torch.where(read_as, found[..., drafter.kept_ids], 0)


class DrafterObjective(Objective):
    """−log p(y_i | y_≤p, x) for the block after a random prefix, smoothed, with glancing."""

    def __init__(self, options: DrafterObjectiveOptions) -> None:
        super().__init__(options)
        self._distance = Distance()

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        """Draw the prefixes, and by what chance a slot is revealed: one number per target token."""
        o = self.options
        ratio = o.glance_first + (o.glance_last - o.glance_first) * min(1.0, max(0.0, progress))
        tensors = {
            "target": batch.target,
            "target_lengths": batch.target_lengths,
            "prefix": torch.stack([random_prefixes(batch.target_lengths, rng) for _ in range(o.blocks)], dim=1),
            "chance": torch.rand(batch.target.shape, generator=rng),
            "ratio": torch.tensor(ratio, dtype=torch.float64),
        }
        return Prepared.of(batch, tensors)

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """The mean over the block's slots that were not revealed, by what they count, times the batch's target tokens.

        Figures: `nll`; `right`, the share of the block's tokens that the drafter finds; `run`, how many it finds before
        the first it does not, which is what a verifier that agrees with the target would accept.
        """
        assert isinstance(model, DrafterWithVerifier)
        drafter, tensors = model.drafter, prepared.tensors
        block, source, prefix = drafter.options.block, tensors["source"], tensors["prefix"]
        if prefix.shape[1] > 1 and drafter.options.prefix == "full":
            raise OptionError("blocks expects 1 with prefix: full, whose tokens see the block; use prefix: causal.")
        visible = prepared.source_mask
        states = None
        if drafter.options.encoder != "own":
            with torch.no_grad():
                states = verifier_states(model.model, drafter.options, source, visible)
        target, columns = _own_targets(drafter, tensors["target"], tensors["target_lengths"]), columns_of(prefix, block)
        wanted = F.pad(target, (0, block), value=PAD).gather(1, columns.flatten(1))
        wanted = torch.where(columns.flatten(1) < tensors["target_lengths"][:, None], wanted, PAD)
        shifted = F.pad(F.pad(target, (1, 0), value=START), (0, block), value=PAD)
        previous = shifted.gather(1, columns.flatten(1)).view(-1, block)

        def draft(filled: Tensor) -> Tensor:
            """[rows * blocks, block, width] from what stands in the blocks, [rows, blocks * block]"""
            if prefix.shape[1] == 1:
                canvas = cut(target, prefix[:, 0], block, filled)
                return drafter(canvas, prefix[:, 0], block, source, visible, states)  # type: ignore[no-any-return]
            found: Tensor = drafter.several(target, prefix, filled, source, visible, states)
            return found.reshape(-1, block, found.shape[2])

        filled = torch.full_like(wanted, MASK)
        wanted = wanted.view(-1, block)
        valid = wanted != PAD
        if drafter.kept_ids is not None:  # what is not kept cannot be drafted: nothing to learn there, and a miss
            wanted = wanted.masked_fill(wanted == UNK, PAD)
        glances = drafter.training and max(self.options.glance_first, self.options.glance_last) > 0
        with torch.set_grad_enabled(torch.is_grad_enabled() and not glances):
            hidden = draft(filled)
        with torch.no_grad():
            # A link is given the tokens before: as far as a draft is right, it has the same, so that `run` is its own.
            found = F.linear(*drafter.projection(hidden, previous)).argmax(dim=-1)
        left = wanted
        if glances:
            chance = F.pad(tensors["chance"], (0, block)).gather(1, columns.flatten(1)).view(-1, block)
            shown = reveal(found, wanted, chance, tensors["ratio"])
            left = wanted.masked_fill(shown, PAD)
            hidden = draft(torch.where(shown, wanted, MASK).view(filled.shape))

        share = None
        if self.options.decay < 1 and drafter.training:
            share = self.options.decay ** torch.arange(block, device=source.device, dtype=torch.float32)[None]
        hidden, output_weight = drafter.projection(hidden, previous)
        given = (hidden, output_weight, left, self.options.label_smoothing, left != PAD)
        total, nll = drafter.token_loss(*given, share)
        counted = left != PAD if share is None else (left != PAD) * share
        weight = counted.sum()  # may be below 1, where few slots are left and late ones: only nothing is nothing
        scale = prepared.tokens / weight.masked_fill(weight == 0, 1)
        loss = total * scale
        if (share_of := self.options.distance) and drafter.training:
            with torch.no_grad():
                whole = states is not None and reads_whole_encoder(drafter.options, model.model)
                memory = states if whole and states is not None else model.model.encode(source, visible)
                theirs = verifier_probabilities(model, tensors, columns, visible, memory)
            apart = self._distance(F.linear(hidden, output_weight), theirs, counted.to(torch.float32))
            loss = (1 - share_of) * loss + share_of * apart * scale
        right = (found == wanted) & (wanted != PAD)
        figures = {
            "nll": nll * scale,
            "right": right.sum() * (prepared.tokens / valid.sum()),
            "run": right.long().cumprod(dim=1).sum() * (prepared.tokens / len(wanted)),
        }
        return Loss(loss, figures)
