"""Drafts that are trees: several tokens may follow one, and the verifier reads all of them in one call.

A step's slots are the newest committed token, slot 0, and the draft's nodes behind it. Every node names the slot of its
parent, which comes before it; a chain is the tree in which each node's parent is the slot before. A node sees what is
committed and its own ancestors, at the positions that these have on its path: its numbers are those of the chain that
leads to it. Accepted nodes are moved together in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride import ops
from longstride.contract import EOS
from longstride.verification.acceptance import FORBIDDEN, LogitSummary, Rule, stands
from longstride.verification.drafting import Proposal


@dataclass(frozen=True)
class Tree:
    """The shape of a draft."""

    above: Tensor
    """[rows, step, step] bool: whether the second slot is the first one or an ancestor of it"""
    depth: Tensor
    """[rows, step] how many nodes lead to a slot, itself counted"""
    paths: Tensor | None = None
    """[rows, step, 1 + step] slots of each path in order, for kernels of attention"""

    @staticmethod
    def of(parents: Tensor) -> Tree:
        """parents [rows, nodes] are slots, each smaller than its node's own: node j is slot j + 1."""
        return Tree(*ops.tree_shape(parents))


def follow(
    tree: Tree,
    rule: Rule,
    draft: Proposal,
    at_parents: LogitSummary,
    reading: LogitSummary,
    eos: int = EOS,
    min_block: int = 1,
) -> tuple[Tensor, Proposal, LogitSummary]:
    """The longest path that stands: its slots [rows, step] in order (beyond its end: any), and the same draft and
    reading as a chain. Of equally long ones, the one that comes first.

    `at_parents` is what the verifier says of each node where its parent stands, `reading` of every slot. With a minimum
    block, paths up to that length are as good as standing ones; of these the one of which most stands.
    """
    nodes = draft.ids.shape[1]
    meant = ops.arange(nodes, draft.ids) < draft.count[:, None]
    ends = F.pad(draft.ids == eos, (1, 0))
    slots = ops.arange(nodes + 1, draft.ids)
    itself = (slots[:, None] == slots)[None]
    behind_end = (tree.above & ~itself & ends[:, None]).sum(dim=-1) > 0

    def whole(fine: Tensor) -> Tensor:
        """[rows, step] slots of which this [rows, nodes] holds, and of all above them; none of these ends the output"""
        return ((tree.above & ~F.pad(fine, (1, 0), value=True)[:, None]).sum(dim=-1) == 0) & ~behind_end

    reached = whole(meant & stands(rule, draft.ids, at_parents, eos))
    order = tree.depth
    if min_block > 1:
        assert at_parents.draft_logit is not None
        stood = (tree.above & reached[:, None]).sum(dim=-1)
        possible = whole(meant & (at_parents.draft_logit > FORBIDDEN)) & (tree.depth < min_block)
        reached, order = reached | possible, tree.depth * (nodes + 2) + stood
    last = torch.where(reached, order, -1).argmax(dim=1)
    on_path = ops.take(tree.above.long(), last[:, None])[:, 0] > 0
    by_depth = (tree.depth[:, None] == slots[None, :, None]) & on_path[:, None]
    path = by_depth.long().argmax(dim=-1)  # [rows, step] the slot on the path of each depth
    length = tree.depth.gather(1, last[:, None])[:, 0]
    drafted = (path[:, 1:] - 1).clamp(min=0)
    top, draft_logit, rank = (
        None if one is None else one.gather(1, drafted)
        for one in (at_parents.top_logit, at_parents.draft_logit, at_parents.draft_rank)
    )
    chain = Proposal(draft.ids.gather(1, drafted), length)
    return path, chain, LogitSummary(reading.top.gather(1, path), top, None, draft_logit, rank)
