"""What other libraries can take of a model folder: an ordinary Transformer that greedy search is right for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from longstride.contract import OptionError, SpecialIds
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.text.tokenizer import SentencePieceTokenizer, Tokenizer
from longstride.translator import Translator

GREEDY = "greedy"


@dataclass(frozen=True)
class Exportable:
    """A model to be handed over: its shape, its weights on the host in float32, its tokenizers."""

    name: str
    """of its folder, for errors"""
    options: TransformerOptions
    weights: dict[str, Tensor]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer

    def linear(self, name: str) -> tuple[Tensor, Tensor]:
        """Weight and bias of a linear layer, or of a norm."""
        return self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]

    @property
    def source_embedding(self) -> Tensor:
        """[source vocabulary, width]"""
        return self.weights["target_embedding.weight" if self.options.tie == "all" else "source_embedding.weight"]

    @property
    def target_embedding(self) -> Tensor:
        """[vocabulary, width]"""
        return self.weights["target_embedding.weight"]

    @property
    def output_embedding(self) -> Tensor:
        """[vocabulary, width]"""
        return self.weights["output_embedding.weight" if self.options.tie == "none" else "target_embedding.weight"]

    @property
    def one_vocabulary(self) -> bool:
        """Source and target ids mean the same."""
        return self.source_tokenizer.sha256 == self.target_tokenizer.sha256

    @property
    def special(self) -> SpecialIds:
        """Its special ids."""
        return self.options.special

    def piece(self, token: int | None) -> str | None:
        """What a special id stands for."""
        return None if token is None else self.target_tokenizer.pieces([token])[0]

    def pieces(self, tokenizer: Tokenizer) -> list[str]:
        """Every piece of a vocabulary, in the order of ids."""
        return tokenizer.pieces(range(tokenizer.size))


def exportable(translator: Translator, to: str) -> Exportable:
    """The Transformer that the folder's greedy search runs; `to` names, in errors, who is to take it."""
    name = str(translator.folder.path)
    if GREEDY not in translator.decoders:
        offered = ", ".join(translator.decoders)
        raise OptionError(f"{to} expects a model that greedy search is right for; {name} offers {offered} alone.")
    model = translator.parts_of(GREEDY)["model"]
    if not isinstance(model, Transformer):
        raise OptionError(f"{to} expects an ordinary Transformer, found {type(model).__name__} in {name}.")
    model.options.refuse_pictures(to)
    weights = {key: value.detach().to("cpu", torch.float32).contiguous() for key, value in model.state_dict().items()}
    return Exportable(name, model.options, weights, translator.source_tokenizer, translator.target_tokenizer)


def write_spm_files(model: Exportable, folder: Path) -> bool:
    """The SentencePiece models beside the weights; False where the vocabulary is of another kind."""
    both = {"source.spm": model.source_tokenizer, "target.spm": model.target_tokenizer}  # as MarianTokenizer wants
    if not all(isinstance(tokenizer, SentencePieceTokenizer) for tokenizer in both.values()):
        return False
    for name, tokenizer in both.items():
        (folder / name).write_bytes(tokenizer.serialized)
    return True
