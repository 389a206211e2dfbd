"""Every objective there is, by the name it has in recipes: what it trains, and what a folder trained so offers.

Apart from the registry of parts and decoders, since decoding needs none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from longstride.contract import DEFAULT_IDS, Objective, OptionError, SpecialIds
from longstride.contract.options import parse
from longstride.model_folder import Part
from longstride.nn.losses import Smoothing
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.search.lengths import LengthRegression
from longstride.systems.autoregressive.objective import AutoregressiveObjective
from longstride.systems.blockwise.model import BlockwiseModel, Heads, HeadsOptions
from longstride.systems.blockwise.objective import BlockwiseObjective, BlockwiseObjectiveOptions
from longstride.systems.draft_verify.kept import count_ids, most_frequent
from longstride.systems.draft_verify.model import Drafter, begin_as, check_encoder
from longstride.systems.draft_verify.objective import DrafterObjective, DrafterObjectiveOptions, DrafterWithVerifier
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.systems.interleaved.model import InterleavedModel, Interleaving
from longstride.systems.interleaved.objective import InterleavedObjective
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.lattice.model import LatticeModel, Scorer, ScorerOptions
from longstride.systems.lattice.objective import LatticeObjective, LatticeObjectiveOptions
from longstride.systems.lattice.tables import Tables
from longstride.systems.non_autoregressive.model import OnePass, OnePassOptions
from longstride.systems.non_autoregressive.objective import NonAutoregressiveObjective


@dataclass(frozen=True)
class Plan:
    """What a model to be trained is made from."""

    settings: Mapping[str, Any]
    """the recipe's `model` section"""
    vocabulary: int
    base: Mapping[str, nn.Module]
    """parts of the model that the recipe builds on, by name; empty where it builds on none"""
    where: str
    """named in errors"""
    lengths: LengthRegression = field(default_factory=LengthRegression)
    """of target on source words, over the training pairs"""
    special: SpecialIds = DEFAULT_IDS
    targets: npt.NDArray[np.integer[Any]] | None = None
    """all target ids of the training pairs, one sentence after the other"""


@dataclass(frozen=True)
class ObjectiveKind:
    """A way of training: its options, what it trains, and what a folder trained so holds and offers."""

    options: type
    build: Callable[[Any], Objective]
    model: Callable[[Plan], nn.Module]
    """the module that is trained, parts of the base inside it"""
    roles: Mapping[str, str]
    """what it is made of, by the names that decoders know as roles -> kind of part"""
    decoders: tuple[str, ...]
    """what the folder offers, its default first; a role is played by the part of the same name"""
    needs_base: bool = False
    withheld: Callable[[Any], tuple[str, ...]] = lambda model: ()
    """those of the decoders that this very model would be misused by"""
    begun: Callable[[Any], str] = lambda model: ""
    """what is left to do once another model's weights have been copied into it; a sentence to say, if there is one"""

    def parts(self, model: Any) -> dict[str, Part]:
        """That module taken apart again, by role; what has one part is that part."""
        modules = {role: model if len(self.roles) == 1 else getattr(model, role) for role in self.roles}
        return {role: Part(kind, modules[role].options, modules[role]) for role, kind in self.roles.items()}

    def offered(self, model: nn.Module) -> tuple[str, ...]:
        """What a folder with this model offers."""
        return tuple(name for name in self.decoders if name not in self.withheld(model))


def _transformer(plan: Plan) -> Transformer:
    settings = {**plan.settings, "vocabulary": plan.vocabulary, "special": plan.special}
    return Transformer(parse(TransformerOptions, settings, plan.where))


def _base(plan: Plan) -> Transformer:
    base = plan.base.get("model")
    if type(base) is not Transformer:  # a scorer or a one-pass model is none that verifies
        raise OptionError(f"{plan.where}: expected a base with a Transformer named 'model', found none.")
    return base


def _blockwise(plan: Plan) -> BlockwiseModel:
    """Heads as wide as the base, and as deep in their hidden layer as its feed-forward layers unless told otherwise."""
    base = _base(plan)
    if "width" in plan.settings:
        raise OptionError(f"{plan.where}: width comes with the base ({base.options.width}) and is not to be set.")
    settings = {"feed_forward": base.options.feed_forward, **plan.settings, "width": base.options.width}
    if settings.get("link"):
        settings["vocabulary"] = base.options.vocabulary
    heads = Heads(parse(HeadsOptions, settings, plan.where))
    if heads.link is not None:
        heads.link.begin_as(base.output_weight)
    return BlockwiseModel(base, heads)


def _drafter(plan: Plan) -> DrafterWithVerifier:
    """A drafter that fits the base, which verifies and lends it as much of its encoder as the recipe says."""
    base = _base(plan)
    settings = {**plan.settings, "vocabulary": base.options.vocabulary, "special": plan.special}
    if settings.get("encoder", "own") != "own":
        settings = {"verifier_width": base.options.width, **settings}
    options = parse(DrafterOptions, settings, plan.where)
    check_encoder(options, base)
    kept = None
    if plan.targets is not None and (options.kept is not None or plan.special != DEFAULT_IDS):
        kept = most_frequent(count_ids(plan.targets, base.options.vocabulary), plan.special, options.kept)
        options = replace(options, kept=kept.size)
    drafter = Drafter(options)
    if kept is not None:
        drafter.keep(kept.ids)
    if options.begin == "verifier":
        begin_as(drafter, base)
    return DrafterWithVerifier(base, drafter)


def _interleaved(plan: Plan) -> InterleavedModel:
    """An ordinary Transformer, and beside it, from `interleaving` in the model's section, what makes it interleaved."""
    settings = dict(plan.settings)
    own = settings.pop("interleaving", {})
    if not isinstance(own, Mapping) or "width" in own:
        raise OptionError(f"{plan.where}: interleaving expects options such as h and c, not the width, found {own!r}.")
    model = _transformer(replace(plan, settings=settings))
    if model.options.embedding_norm:  # its slots read words, or none, as they are: greedy search of it would norm them
        raise OptionError(f"{plan.where}: an interleaved decoder expects embedding_norm: false, found true.")
    own = {**own, "width": model.options.width}
    if own.get("link"):
        own["vocabulary"] = model.options.vocabulary
    chosen = parse(InterleavingOptions, own, f"{plan.where}, interleaving")
    return InterleavedModel(model, Interleaving(chosen.completed(own)))


def _lattice(plan: Plan) -> LatticeModel:
    """A scorer, beside the tables of the base that it will search with."""
    tables = plan.base.get("tables")
    if not isinstance(tables, Tables):
        raise OptionError(f"{plan.where}: expected a base with candidate tables named 'tables', found none.")
    settings = {**plan.settings, "vocabulary": plan.vocabulary, "special": plan.special}
    return LatticeModel(Scorer(parse(ScorerOptions, settings, plan.where)), tables)


def _one_pass(plan: Plan) -> OnePass:
    """Lengths are those of the training pairs, unless the recipe says otherwise."""
    settings = {"length": plan.lengths, **plan.settings, "vocabulary": plan.vocabulary, "special": plan.special}
    return OnePass(parse(OnePassOptions, settings, plan.where))


OBJECTIVES: dict[str, ObjectiveKind] = {
    "autoregressive": ObjectiveKind(
        Smoothing,
        AutoregressiveObjective,
        _transformer,
        {"model": "transformer"},
        ("greedy", "beam"),
    ),
    "blockwise": ObjectiveKind(
        BlockwiseObjectiveOptions,
        BlockwiseObjective,
        _blockwise,
        {"model": "transformer", "heads": "heads"},
        ("blockwise", "greedy", "beam"),
        needs_base=True,
        # With a learned first head the base alone is no model any more; blockwise with k=1 is its greedy search.
        withheld=lambda model: ("greedy", "beam") if model.heads.options.first == "learned" else (),
    ),
    "drafter": ObjectiveKind(
        DrafterObjectiveOptions,
        DrafterObjective,
        _drafter,
        {"model": "transformer", "drafter": "drafter"},
        ("draft-verify", "draft", "greedy", "beam"),
        needs_base=True,
    ),
    "interleaved": ObjectiveKind(
        Smoothing,
        InterleavedObjective,
        _interleaved,
        {"model": "transformer", "interleaving": "interleaving"},
        ("interleaved", "greedy", "beam"),
        withheld=lambda model: () if model.options.ordinary else ("greedy", "beam"),
        begun=InterleavedModel.begun,
    ),
    "lattice": ObjectiveKind(
        LatticeObjectiveOptions,
        LatticeObjective,
        _lattice,
        {"model": "scorer", "tables": "tables"},
        ("lattice", "counts"),
        needs_base=True,
    ),
    "non-autoregressive": ObjectiveKind(
        Smoothing,
        NonAutoregressiveObjective,
        _one_pass,
        {"model": "one-pass"},
        ("non-autoregressive",),
    ),
}
