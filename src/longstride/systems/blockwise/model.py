"""What blockwise decoding adds to a Transformer (Figure 3): a feed-forward layer with k outputs after the decoder.

Head i predicts, from the decoder's state at one slot, the token i - 1 places after the one that this slot predicts. All
heads read one hidden layer of (heads with weights) x feed_forward units; the decoder's state is added to each head's
output, nothing is normalised after that, and the model's own projection makes logits of all of them.

Head 1 is the decoder's state itself, unless the paper's learned transform is asked for. With the identity a frozen
model stays exactly what it was: the output is its own greedy output. It then needs no weights, so that the hidden layer
has (k - 1) x feed_forward units; with a learned head 1 it has k x feed_forward.

Knows nothing of drafts, acceptance or losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.contract import OptionError, option
from longstride.contract.options import Options
from longstride.nn.layers import Linear
from longstride.nn.link import TREE_CANDIDATES, Link
from longstride.nn.transformer import Transformer


@dataclass(frozen=True)
class HeadsOptions(Options):
    """The shape of the prediction heads."""

    k: int = option(help="How many tokens are predicted from one state, the next one included.", least=1, most=1024)
    width: int = option(help="Width of the model they are added to.", least=1, most=65536)
    feed_forward: int = option(
        2048, "Hidden units per head with weights; every head reads all of them.", least=1, most=2**20
    )
    first: Literal["identity", "learned"] = option(
        "identity", "Head 1 is the model as it is (identity), or transformed like the other heads (learned)."
    )
    activation: Literal["relu", "gelu", "silu"] = option("relu", "Activation of the hidden layer.")
    dropout: float = option(0.1, "Dropout on each head's output, before the residual sum.", least=0, below=1)
    activation_dropout: float = option(0.0, "Dropout after the activation.", least=0, below=1)
    link: int = option(
        0,
        "Rank of a table that ties neighbouring tokens of a draft (0: none, as in the paper); see nn/link.py.",
        least=0,
        most=65536,
    )
    vocabulary: int | None = option(
        None, "With a link: the model's vocabulary; set from the base.", least=1, most=10**7
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link and self.vocabulary is None:
            raise OptionError("link expects the vocabulary of the model that the heads are added to, found none.")
        if self.first == "identity" and self.k < 2:
            raise OptionError(
                "k expects 2 or more where the first head is an identity, found 1: that is the model itself; "
                "use first: learned to train a single head."
            )

    @property
    def fixed(self) -> int:
        """How many of the first heads have no weights."""
        return 1 if self.first == "identity" else 0


class Heads(nn.Module):
    """k outputs for every state. Heads are counted from 1, as the paper does."""

    compile_unit = True

    def __init__(self, options: HeadsOptions) -> None:
        super().__init__()
        self.options = options
        learned = options.k - options.fixed
        self.up = Linear(options.width, learned * options.feed_forward)
        self.down = nn.Linear(learned * options.feed_forward, learned * options.width)
        self.dropout = nn.Dropout(options.dropout)
        self.activation_dropout = nn.Dropout(options.activation_dropout)
        self.link = (
            Link(options.vocabulary, options.width, options.link) if options.link and options.vocabulary else None
        )
        # Every head begins as the state it reads: a trained model is left as it is, and head 1 is right from the start.
        nn.init.xavier_uniform_(self.up.weight)
        for begun in (self.up.bias, self.down.weight, self.down.bias):
            nn.init.zeros_(begun)

    def forward(self, hidden: Tensor, head: Tensor) -> Tensor:
        """One head's output, [..., width] -> [..., width]; `head` [] int64 stays on the device."""
        o = self.options
        rows = (head - 1 - o.fixed).clamp(min=0) * o.width + torch.arange(o.width, device=hidden.device)
        output = self._outputs(hidden, self.down.weight.index_select(0, rows), self.down.bias.index_select(0, rows))
        return torch.where(head > o.fixed, output[..., 0, :], hidden) if o.fixed else output[..., 0, :]

    def every(self, hidden: Tensor) -> Tensor:
        """All heads' outputs, [..., width] -> [..., k, width]"""
        outputs = self._outputs(hidden, self.down.weight, self.down.bias)
        return torch.cat([hidden[..., None, :], outputs], dim=-2) if self.options.fixed else outputs

    def first(self, hidden: Tensor) -> Tensor:
        """Head 1's output, the one that verifies: [..., width] -> [..., width]"""
        if self.options.fixed:
            return hidden
        if self.training:
            return self._outputs(hidden, *self._slice(1, 1))[..., 0, :]
        return ops.linear(self._units(hidden), *self._slice(1, 1), added=hidden)

    def ahead(self, hidden: Tensor, k: int) -> Tensor:
        """The outputs of heads 2 to k, [..., width] -> [..., k - 1, width]"""
        if self.training:
            return self._outputs(hidden, *self._slice(2, k))
        # Drafts alone come from here: whoever verifies keeps to products whose bits it knows.
        return ops.row_product(self._units(hidden), *self._slice(2, k), hidden)

    def linked(
        self,
        hidden: Tensor,
        newest: Tensor,
        k: int,
        model: Transformer,
        into: Tensor | None = None,
        count: Tensor | None = None,
    ) -> Tensor:
        """The choices of heads 2 to k, each given those before it, `newest` [rows] first, where there is a link

        [rows, width] -> [rows, k - 1], by the model's own projection; `into` and `count` as
        :meth:`~longstride.nn.link.Link.drafted` takes them.
        """
        assert self.link is not None
        states = self.ahead(hidden, k)
        if model.logits_bias is None:
            return self.link.drafted_from(states, model.output_weight, newest, into, count)
        return self.link.drafted(model.logits(states), states, newest, into, count)

    def grown(
        self,
        hidden: Tensor,
        newest: Tensor,
        k: int,
        model: Transformer,
        nodes: int,
        into: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The likeliest tree of what heads 2 to k say after `newest` [rows], by the model's own projection

        [rows, width] -> tokens, put `into` a tensor if one is given, and parents [rows, nodes]; heads without a link do
        not know what they follow.
        """
        states = self.ahead(hidden, k)
        if self.link is not None and model.logits_bias is None:
            return self.link.grown_from(states, model.output_weight, newest, nodes, into)
        logits = model.logits(states)
        if self.link is not None:
            return self.link.grown(logits, states, newest, nodes, into)
        return ops.tree_tokens(logits, newest, None, None, None, TREE_CANDIDATES, nodes, into)

    def _slice(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Weight and bias that make the outputs of these heads, both counted in."""
        o = self.options
        rows = slice((first - 1 - o.fixed) * o.width, (last - o.fixed) * o.width)
        return self.down.weight[rows], self.down.bias[rows]

    def _outputs(self, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """[..., width] -> [..., heads, width], for the heads whose weight and bias these are."""
        outputs = F.linear(self._units(hidden), weight, bias).view(*hidden.shape[:-1], -1, self.options.width)
        return hidden[..., None, :] + self.dropout(outputs)  # type: ignore[no-any-return]

    def _units(self, hidden: Tensor) -> Tensor:
        """[..., width] -> the hidden layer that all heads read"""
        units = ops.linear(hidden, self.up.weight, self.up.bias, self.options.activation)
        return self.activation_dropout(units)  # type: ignore[no-any-return]


class BlockwiseModel(nn.Module):
    """A Transformer and its heads, to be trained together or the heads alone (freeze ``model.*``)."""

    def __init__(self, base: Transformer, heads: Heads) -> None:
        super().__init__()
        if base.options.width != heads.options.width:
            raise OptionError(
                f"heads expect the model's width {base.options.width}, found heads of width {heads.options.width}."
            )
        self.model = base
        self.heads = heads

    @property
    def frozen(self) -> bool:
        """Whether nothing of the Transformer is trained."""
        return not any(weight.requires_grad for weight in self.model.parameters())

    def forward(self, source: Tensor, visible: Tensor | None, inputs: Tensor) -> Tensor:
        """The decoder's states that all heads read, [rows, target, width].

        source [rows, source] with `visible` of the same shape (None: nothing is padded), inputs [rows, target]. A
        frozen Transformer gives its own states, without dropout, and keeps nothing for gradients.
        """
        frozen = self.frozen
        if frozen and self.model.training:
            self.model.eval()
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            return self.model.decode(inputs, self.model.encode(source, visible), visible)
