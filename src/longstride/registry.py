"""Every kind of part and decoder there is, by the name it has in model folders and commands.

A system is imported when one of its parts or decoders is asked for: greedy search imports no lattice. Objectives are in
objectives.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from longstride.contract import ModelFolderError, OptionError
from longstride.contract.options import parse

if TYPE_CHECKING:
    from torch import nn

    from longstride.contract import Decoder, Likelihood, Runner
    from longstride.model_folder import ModelFolder


class Weights(NamedTuple):
    """The options of a kind of weights, and how it is built from them."""

    options: type
    build: Callable[[Any], nn.Module]


@dataclass(frozen=True)
class PartKind:
    """A kind of weights."""

    imports: Callable[[], Weights]
    additions: tuple[str, ...] = ()
    """patterns of weights that a part without them may be the start of; they begin as they are built"""

    @cached_property
    def _weights(self) -> Weights:
        return self.imports()

    @property
    def options(self) -> type:
        """Its options."""
        return self._weights.options

    @property
    def build(self) -> Callable[[Any], nn.Module]:
        """Makes it of its options."""
        return self._weights.build


class Method(NamedTuple):
    """The options of a way of generating, and how it is put together."""

    options: type
    build: Callable[[Mapping[str, Any], Runner, Any], Decoder]
    likelihood: Callable[[Mapping[str, Any], Runner], Likelihood] | None = None


@dataclass(frozen=True)
class DecoderKind:
    """A way of generating: what it is, what it needs and how it is put together."""

    summary: str
    roles: Mapping[str, str]
    """role -> the kind of part that plays it"""
    imports: Callable[[], Method]
    comes_with: str = ""
    """a folder that offers this decoder can do the new one too, with the same parts, even if it does not say so"""
    one_vocabulary: bool = False
    """source and target ids must mean the same"""

    @cached_property
    def _method(self) -> Method:
        return self.imports()

    @property
    def options(self) -> type:
        """Its options."""
        return self._method.options

    @property
    def build(self) -> Callable[[Mapping[str, Any], Runner, Any], Decoder]:
        """Makes it of parts by role, a runner and its options."""
        return self._method.build

    @property
    def likelihood(self) -> Callable[[Mapping[str, Any], Runner], Likelihood] | None:
        """How probable its model holds given outputs; a decoder that verifies has its verifier's."""
        return self._method.likelihood


def _transformer() -> Weights:
    from longstride.nn.options import TransformerOptions
    from longstride.nn.transformer import Transformer

    return Weights(TransformerOptions, Transformer)


def _heads() -> Weights:
    from longstride.systems.blockwise.model import Heads, HeadsOptions

    return Weights(HeadsOptions, Heads)


def _drafter() -> Weights:
    from longstride.systems.draft_verify.model import Drafter
    from longstride.systems.draft_verify.options import DrafterOptions

    return Weights(DrafterOptions, Drafter)


def _interleaving() -> Weights:
    from longstride.systems.interleaved.model import Interleaving
    from longstride.systems.interleaved.options import InterleavingOptions

    return Weights(InterleavingOptions, Interleaving)


def _tables() -> Weights:
    from longstride.systems.lattice.tables import Tables, TablesOptions

    return Weights(TablesOptions, Tables)


def _scorer() -> Weights:
    from longstride.systems.lattice.model import Scorer, ScorerOptions

    return Weights(ScorerOptions, Scorer)


def _one_pass() -> Weights:
    from longstride.systems.non_autoregressive.model import OnePass, OnePassOptions

    return Weights(OnePassOptions, OnePass)


LINK = ("link.*",)

PARTS: dict[str, PartKind] = {
    "transformer": PartKind(_transformer),
    "heads": PartKind(_heads, LINK),
    "drafter": PartKind(_drafter, LINK),
    "interleaving": PartKind(_interleaving, ("starts", *LINK)),
    "tables": PartKind(_tables),
    "scorer": PartKind(_scorer),
    "one-pass": PartKind(_one_pass),
}


def _token_by_token(parts: Mapping[str, Any], runner: Runner) -> Likelihood:
    from longstride.systems.autoregressive.likelihood import AutoregressiveLikelihood

    return AutoregressiveLikelihood(parts["model"], runner)


def _greedy() -> Method:
    from longstride.systems.autoregressive.decoder import Greedy, GreedyOptions

    return Method(
        GreedyOptions, lambda parts, runner, options: Greedy(parts["model"], runner, options), _token_by_token
    )


def _beam() -> Method:
    from longstride.systems.autoregressive.decoder import Beam, BeamOptions

    return Method(BeamOptions, lambda parts, runner, options: Beam([parts["model"]], runner, options), _token_by_token)


def _blockwise() -> Method:
    from longstride.systems.autoregressive.likelihood import AutoregressiveLikelihood
    from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions

    return Method(
        BlockwiseOptions,
        lambda parts, runner, options: Blockwise(parts["model"], parts["heads"], runner, options),
        lambda parts, runner: AutoregressiveLikelihood(parts["model"], runner, parts["heads"].first),
    )


def _copy_verify() -> Method:
    from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions

    return Method(
        CopyVerifyOptions, lambda parts, runner, options: CopyVerify(parts["model"], runner, options), _token_by_token
    )


def _draft_verify() -> Method:
    from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions

    return Method(
        DraftVerifyOptions,
        lambda parts, runner, options: DraftVerify(parts["model"], parts["drafter"], runner, options),
        _token_by_token,
    )


def _draft() -> Method:
    from longstride.systems.draft_verify.decoder import Draft, DraftOptions

    return Method(DraftOptions, lambda parts, runner, options: Draft(parts["model"], parts["drafter"], runner, options))


def _interleaved() -> Method:
    from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
    from longstride.systems.interleaved.likelihood import InterleavedLikelihood
    from longstride.systems.interleaved.model import InterleavedModel

    return Method(
        InterleavedOptions,
        lambda parts, runner, options: Interleaved(parts["model"], parts["interleaving"], runner, options),
        lambda parts, runner: InterleavedLikelihood(InterleavedModel(parts["model"], parts["interleaving"]), runner),
    )


def _counts() -> Method:
    from longstride.systems.lattice.counts_decoder import CountsDecoder, CountsOptions

    return Method(CountsOptions, lambda parts, runner, options: CountsDecoder(parts["tables"], runner, options))


def _lattice() -> Method:
    from longstride.systems.lattice.decoder import with_tables
    from longstride.systems.lattice.pipeline import LatticeOptions

    return Method(
        LatticeOptions, lambda parts, runner, options: with_tables(parts["model"], parts["tables"], runner, options)
    )


def _non_autoregressive() -> Method:
    from longstride.systems.non_autoregressive.decoder import NonAutoregressive, NonAutoregressiveOptions

    return Method(
        NonAutoregressiveOptions, lambda parts, runner, options: NonAutoregressive(parts["model"], runner, options)
    )


DECODERS: dict[str, DecoderKind] = {
    "greedy": DecoderKind("the most likely token, one after another", {"model": "transformer"}, _greedy),
    "beam": DecoderKind("the best of several hypotheses, with exact early stopping", {"model": "transformer"}, _beam),
    "blockwise": DecoderKind(
        "heads predict a block, the model verifies it", {"model": "transformer", "heads": "heads"}, _blockwise
    ),
    "copy-verify": DecoderKind(
        "the source as the draft, verified; for correction and whatever else mostly copies",
        {"model": "transformer"},
        _copy_verify,
        comes_with="greedy",
        one_vocabulary=True,
    ),
    "draft-verify": DecoderKind(
        "a drafter proposes a block, the model verifies it",
        {"model": "transformer", "drafter": "drafter"},
        _draft_verify,
    ),
    "draft": DecoderKind("the drafter alone, a block per pass", {"model": "transformer", "drafter": "drafter"}, _draft),
    "interleaved": DecoderKind(
        "several words per pass, from both ends of the sentence",
        {"model": "transformer", "interleaving": "interleaving"},
        _interleaved,
    ),
    "counts": DecoderKind(
        "the likeliest word at each place by aligned counts, no model at all", {"tables": "tables"}, _counts
    ),
    "lattice": DecoderKind(
        "candidates for every place, all edges scored in one pass, an exact search for the best path",
        {"model": "scorer", "tables": "tables"},
        _lattice,
    ),
    "non-autoregressive": DecoderKind(
        "all words in one pass, none knowing of another; the best of several lengths",
        {"model": "one-pass"},
        _non_autoregressive,
    ),
}


def find(kinds: Mapping[str, Any], name: str, what: str) -> Any:
    """Look a kind up; an unknown name is answered with those there are."""
    if name not in kinds:
        raise OptionError(f"There is no {what} {name!r}; there are {', '.join(sorted(kinds))}.")
    return kinds[name]


def part_options(folder: ModelFolder, name: str) -> Any:
    """The options of a part of a folder, checked, with the folder's special ids."""
    config = folder.parts[name]
    try:
        if "special" in config.options:
            raise OptionError(f"parts.{name}: special ids are expected in special_ids, for all parts, found some here.")
        options: Any = parse(find(PARTS, config.kind, "kind of part").options, config.options, f"parts.{name}")
    except OptionError as error:
        raise ModelFolderError(f"{folder.config_file}: {error}") from None
    return replace(options, special=folder.special) if hasattr(options, "special") else options


def part_builder(folder: ModelFolder, name: str) -> Callable[[], nn.Module]:
    """What builds a part of a folder from its options, once these have been checked."""
    options = part_options(folder, name)
    return lambda: PARTS[folder.parts[name].kind].build(options)
