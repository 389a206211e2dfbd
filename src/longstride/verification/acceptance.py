"""Verdicts as pure functions of tensors: how many drafted tokens stand, and what is committed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import EOS
from longstride.verification.drafting import Proposal


@dataclass(frozen=True)
class Reading:
    """What the verifier says of one step's slots: the most a rule may look at."""

    top: Tensor
    """[rows, block + 1] the verifier's own choice after each prefix of the draft"""
    top_log_probability: Tensor
    """[rows, block + 1] and its log-probability"""


@dataclass(frozen=True)
class Verdict:
    """What becomes of one iteration."""

    accepted: Tensor
    """[rows] drafted tokens that stand"""
    ids: Tensor
    """[rows, block + 1] accepted tokens, then the verifier's own"""
    committed: Tensor
    """[rows] how many of ids are committed: accepted + 1, or up to and with the first EOS"""
    ended: Tensor
    """[rows] bool: EOS was committed"""


def exact(proposal: Proposal, reading: Reading) -> Tensor:
    """[rows] length of the longest prefix of the draft that the verifier would have written itself."""
    block = proposal.ids.shape[1]
    meant = torch.arange(block, device=proposal.ids.device) < proposal.count[:, None]
    stands = meant & (proposal.ids == reading.top[:, :block])
    return stands.cumprod(dim=1).sum(dim=1)


def commit(proposal: Proposal, reading: Reading, accepted: Tensor) -> Verdict:
    """The accepted tokens and the verifier's own next one, cut after the first EOS."""
    block = proposal.ids.shape[1]
    columns = torch.arange(block + 1, device=accepted.device)
    drafted = torch.cat([proposal.ids, reading.top[:, block:]], dim=1)
    ids = torch.where(columns < accepted[:, None], drafted, reading.top)
    ends = (ids == EOS) & (columns <= accepted[:, None])
    ended = ends.any(dim=1)
    first = ends.to(torch.int64).argmax(dim=1)
    committed = torch.where(ended, first, accepted) + 1
    # What lies behind an EOS inside the draft was never accepted.
    accepted = torch.minimum(accepted, committed)
    return Verdict(accepted, ids, committed, ended)
