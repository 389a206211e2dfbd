"""What the decoder reads: words in the order of writing, shifted by a step."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from longstride.contract import START


def shifted(words: Tensor, step: int) -> Tensor:
    """[rows, slots] -> the decoder's inputs: `step` start symbols, then all words but the last step's."""
    return F.pad(words, (step, 0), value=START)[:, : words.shape[1]]
