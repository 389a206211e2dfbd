"""From a recipe to a trained model folder: wires corpus, tokenizer, model, objective and the training loop together.

A recipe is one set of options, usually a YAML file. A run leaves a folder with the recipe as it ran, a metrics file,
checkpoints and, when it is through, `model/`, a model folder. What a recipe needs and does not find (the tokenizer, the
binarized corpus) it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from longstride import model_folder, recipe_origin
from longstride.contract import RESERVED, InputError, Limits, OptionError, Source, UsageError, option
from longstride.contract.options import Options, as_dict, parse, shown
from longstride.contract.running import GIB, available
from longstride.model_folder import MODEL, STORED, DecoderConfig, ModelFolder, Part, resolve
from longstride.nn.transformer import scale_by_depth
from longstride.objectives import OBJECTIVES, Plan
from longstride.ops import avoid_planned_attention
from longstride.ops.cuda.table import training_table
from longstride.ops.kernels import train_with
from longstride.recipe_data import (
    DataOptions,
    corpus_of,
    generated,
    lengths_of,
    limits_of,
    readable,
    required,
    tokenizer_of,
    tokenizer_path,
)
from longstride.recipe_origin import Origin
from longstride.registry import DECODERS, PARTS, find, part_builder
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression
from longstride.systems.draft_verify.shortlist_counts import count as count_shortlist
from longstride.tasks.summarization import Rouge
from longstride.tasks.translation import translation_metrics
from longstride.text.batches import TokenBatches
from longstride.text.corpus import read_parallel
from longstride.text.files import file_sha256
from longstride.text.tokenizer import Tokenizer
from longstride.training.distributed import join
from longstride.training.loop import Result, Trainer
from longstride.training.metrics import Reporter, Silent
from longstride.training.naming import freeze, warm_start
from longstride.training.options import TrainingOptions
from longstride.training.validation import Validator

_TOKENIZER = "data.tokenizer"
_SPLITS: tuple[Literal["train", "valid"], ...] = ("train", "valid")


@dataclass(frozen=True)
class ValidationOptions(Options):
    """Validation by decoding, besides the loss."""

    metric: Literal["bleu", "rouge", "exact", "none"] = option(
        "bleu", "BLEU or ROUGE-L of greedy outputs, or the share that is exactly right."
    )
    every: int = option(0, "Updates between two (0: each epoch).", least=0, most=10**9)
    sentences: int = option(2000, "How many sentences to decode.", least=1, most=10**9)
    batch: int = option(512, "How many stand side by side.", least=1, most=10**6)


@dataclass(frozen=True)
class Recipe(Options):
    """A whole training run."""

    name: str = option(help="Names the run in records.")
    training: TrainingOptions = option(help="The loop.")
    about: str = option("", "What it is for, and the row of results it made.")
    data: DataOptions = option(factory=DataOptions, help="What is learnt from.")
    model: dict[str, Any] = option(factory=dict, help="Architecture; the vocabulary comes with the tokenizer.")
    objective: dict[str, Any] = option(factory=dict, help="`kind` and its options.")
    validation: ValidationOptions = option(factory=ValidationOptions, help="Validation by decoding.")
    base: str = option("", "Model folder to build on: what heads or a drafter are added to.")
    warm_start: str = option("", "Model folder to take weights from; the optimizer starts fresh.")
    init: Literal["plain", "depth-scaled"] = option(
        "plain", "How weights are drawn; depth-scaled makes them smaller from layer to layer."
    )
    attention: Literal["library", "own"] = option(
        "library", "Kernels in training on CUDA; own: ours, for sequences of up to 128 tokens."
    )
    norms: Literal["library", "own"] = option(
        "library",
        "Kernels for residual sums and their norms in training on CUDA; own: ours, for post-norm models of width 256 "
        "or 512 in half precision.",
    )
    shortlist: int = option(
        32,
        "Words for each source id in the shortlist that is counted for a drafter, for processors (0: none).",
        least=0,
        most=1024,
    )
    store: Literal["fp32", "fp16", "int8"] = option(
        "fp32", "Precision of the weights in the model folder; int8: matrices, with a scale for each row."
    )


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    result: Result
    model: Path | None
    """The model folder; None where the run was cut short"""
    parameters: int
    leads: bool = True
    """False in all but one of several processes"""


def run(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter | None = None,
    provenance: dict[str, Any] | None = None,
    origin: Origin | None = None,
) -> Outcome:
    """Train as the recipe says; interrupted or out of time, `resume` goes on from the newest checkpoint.

    `origin` is what :func:`origin_of` gave, if somebody has asked it already.
    """
    check(recipe)
    origin = origin or origin_of(recipe, folder)
    avoid_planned_attention()
    chosen = {"attention": recipe.attention, "norms": recipe.norms}
    train_with(training_table([name for name, how in chosen.items() if how == "own"]))
    team = join(torch.device(device))
    tell = (reporter or Silent()) if team.leads else Silent()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(recipe.data, folder, tell, _base_tokenizer(recipe)) if team.leads else None
    if team.world > 1:  # the leader makes what is missing, the others read it
        torch.distributed.barrier()
        tokenizer = tokenizer or tokenizer_of(recipe.data, folder, Silent())
    assert tokenizer is not None
    if origin.contents.setdefault(_TOKENIZER, tokenizer.sha256) != tokenizer.sha256:
        raise UsageError(f"{folder}: expected the tokenizer that the run in it was started with, found another.")
    if team.leads:
        origin.write(folder)
    kind, objective = _objective(recipe)
    corpora = {split: corpus_of(recipe.data, split, tokenizer, folder, tell, team.leads) for split in _SPLITS}
    torch.manual_seed(recipe.training.seed)
    base = _loaded(recipe.base, tokenizer) if recipe.base else {}
    objective.special = ModelFolder(resolve(recipe.base)).special if recipe.base else tokenizer.special
    plan = _plan(recipe, tokenizer.size, base, lengths_of(corpora["train"]))
    model = kind.model(replace(plan, special=objective.special, targets=corpora["train"].target.ids))
    if recipe.init == "depth-scaled":
        scale_by_depth(part.module for name, part in kind.parts(model).items() if name not in base)
    longest = _longest(kind.parts(model))
    train, valid = (readable(corpora[split], split, longest, tell) for split in _SPLITS)
    if recipe.warm_start:
        freeze(model, recipe.training.freeze)
        parts = {name: part for name, part in kind.parts(model).items() if name not in base or _trained(part.module)}
        _warm_start(parts, kind.decoders, recipe.warm_start, tokenizer, tell)
        if said := kind.begun(model):
            tell.message(said)
    batches = TokenBatches(train, recipe.data.batches)
    tell.message(
        f"{len(train):,} training pairs in {batches.batches_in(0):,} batches a pass; {batches.waste().sentence}"
    )
    held_out = replace(recipe.data.batches, shuffle=False)
    trainer = Trainer(
        model,
        objective,
        batches,
        recipe.training,
        folder,
        validation=TokenBatches(valid, held_out),
        validators=_validators(recipe, tokenizer, longest, team.device),
        reporter=reporter,
        team=team,
    )
    result = trainer.run(resume=resume)
    count = sum(weight.numel() for weight in model.parameters())
    finished = None
    if not result.interrupted and result.reason != "time" and team.leads:
        finished = folder / MODEL
        history = {
            **(provenance or {}),
            "recipe": as_dict(recipe),
            "data": train.manifest.target_sha256 if train.manifest else recipe.data.task,
            "updates": result.step,
            "target_tokens": result.tokens,
            "minutes": round(result.seconds / 60, 2),
            "validation": result.scores,
            "averaged_updates": list(result.averaged),
        }
        home = ModelFolder(resolve(recipe.base)) if recipe.base else None
        if home is not None:
            history["base"] = home.config.provenance
        parts = kind.parts(model)
        if recipe.shortlist and any("shortlist" in DECODERS[name].optional for name in kind.decoders):
            tell.message("Counting the shortlist that drafts are made of on processors.")
            sides = (tokenizer, tokenizer)
            counted = count_shortlist(train, *sides, recipe.shortlist, objective.special, device=team.device)
            parts["shortlist"] = Part("shortlist", counted.options, counted)
        decoders = {name: DecoderConfig(DECODERS[name].played_by(parts)) for name in kind.offered(model)}
        theirs = home.decoders if home is not None else {}
        for name in {"greedy", "beam"} & decoders.keys() & theirs.keys():  # what a base asks for is asked for still
            decoders[name] = replace(decoders[name], defaults=theirs[name].defaults)
        model_folder.write(
            finished,
            parts,
            decoders,
            kind.decoders[0],
            tokenizer,
            provenance=history,
            dtype=STORED[recipe.store],
            limits=limits_of(corpora["train"], tokenizer) or (home.config.limits if home is not None else None),
            sentences=home is not None and home.config.sentences,
        )
    team.leave()
    return Outcome(result, finished, count, team.leads)


def check(recipe: Recipe) -> None:
    """Refuse what cannot work before anything is written: options that do not fit, files that are not there."""
    kind, _ = _objective(recipe)
    if kind.needs_base and not recipe.base:
        raise OptionError(f"{recipe.name}: this objective expects `base`, the model folder it builds on, found none.")
    for name, advice in (("vocabulary", "; data.vocabulary is the size of a tokenizer to be made"), ("special", "")):
        if name in recipe.model:
            raise OptionError(
                f"{recipe.name}: model.{name} comes with the tokenizer and cannot be set, found "
                f"{shown(recipe.model[name])}{advice}."
            )
    base = _loaded(recipe.base, None) if recipe.base else {}
    with torch.device("meta"):  # shapes alone
        sketched = kind.model(_plan(recipe, len(RESERVED) + 1, base))
    # In fp32, words' embeddings aside; weights are made on the host wherever the model goes then.
    needed, there = 4 * sum(weight.numel() for weight in sketched.parameters()), available(torch.device("cpu"))
    if there is not None and needed > there:
        raise OptionError(
            f"{recipe.name}, model: expected weights that fit into memory, of which {there / GIB:,.1f} GiB are there, "
            f"found {needed / GIB:,.1f} GiB of weights."
        )
    if recipe.data.task == "files":
        for split in _SPLITS:
            for file in required(recipe.data, split):
                if not Path(file).is_file():
                    raise InputError(f"{file}: expected a text file, found none.")
    if recipe.warm_start:
        ModelFolder(resolve(recipe.warm_start))
    # Another one would be made in its place, whose ids mean something else to the base.
    if (named := recipe.data.tokenizer) and (path := recipe.base or recipe.warm_start) and not Path(named).is_file():
        own = ModelFolder(resolve(path))
        raise InputError(
            f"{recipe.name}: data.tokenizer expects the tokenizer of {path}, found no file {named}; "
            f"--set data.tokenizer={own.path / own.config.tokenizer} names it."
        )


def origin_of(recipe: Recipe, folder: Path, started: Recipe | None = None) -> Origin:
    """What a run of this recipe learns from; refused where the folder holds a run that was started with something else.

    `started` stands for a run that kept its recipe but, being of an earlier version, no hashes. Writes nothing.
    """
    contents: dict[str, str] = {}
    if recipe.data.task == "files":
        for name in (f"{split}_{side}" for split in _SPLITS for side in ("source", "target")):
            contents[f"data.{name}"] = file_sha256(getattr(recipe.data, name))
    for name, path in (("base", recipe.base), ("warm_start", recipe.warm_start)):
        if path:
            contents[name] = ModelFolder(resolve(path)).identity
    if (tokenizer := tokenizer_path(recipe.data, folder)).is_file():
        contents[_TOKENIZER] = file_sha256(tokenizer)
    origin = Origin(as_dict(recipe), contents)
    before = recipe_origin.read(folder)
    if before is not None:  # options that are new since then have their defaults
        known = as_dict(parse(Recipe, before.recipe, str(folder / recipe_origin.FILE)))
        origin.check(Origin(known, before.contents), folder)
        return replace(origin, contents={**before.contents, **contents})
    if started is not None:
        origin.check(Origin(as_dict(started), {}), folder)
    return origin


def _plan(recipe: Recipe, vocabulary: int, base: dict[str, nn.Module], lengths: LengthRegression | None = None) -> Plan:
    return Plan(recipe.model, vocabulary, base, f"{recipe.name}, model", lengths or LengthRegression())


def _longest(parts: dict[str, Part]) -> int:
    """Positions that every part has."""
    return min(getattr(part.options, "longest", 1 << 30) for part in parts.values())


def _objective(recipe: Recipe) -> tuple[Any, Any]:
    settings = dict(recipe.objective)
    name = str(settings.pop("kind", "autoregressive"))
    kind = find(OBJECTIVES, name, "objective")
    return kind, kind.build(parse(kind.options, settings, f"{recipe.name}, objective"))


def _loaded(path: str, tokenizer: Tokenizer | None) -> dict[str, nn.Module]:
    """The parts of a model folder, whose tokenizer must be this one; without one, shapes alone (on the meta device)."""
    folder = ModelFolder(resolve(path))
    if folder.config.source_tokenizer is not None:  # one tokenizer reads both sides here: its ids mean something else
        raise OptionError(f"{path}: expected a model with one tokenizer for source and target, found one for each.")
    if tokenizer is not None and folder.config.tokenizer_sha256 != tokenizer.sha256:
        raise OptionError(f"{path}: expected a model with the tokenizer of this recipe, found one with another.")
    load = folder.sketch if tokenizer is None else folder.load
    return {name: load(name, part_builder(folder, name)) for name in folder.parts}


def _base_tokenizer(recipe: Recipe) -> Tokenizer | None:
    """That of the model folder which the recipe builds on, if it does."""
    path = recipe.base or recipe.warm_start
    return ModelFolder(resolve(path)).tokenizers()[0] if path else None


def _trained(module: nn.Module) -> bool:
    """Whether anything of it is; a base of which nothing is stays the base, whatever a drafter or heads begin as."""
    return any(weight.requires_grad for weight in module.parameters())


def _warm_start(
    parts: dict[str, Part], decoders: Sequence[str], path: str, tokenizer: Tokenizer, tell: Reporter
) -> None:
    """Copy the weights of every part that the other folder has too; what is counted, not learnt, stays as it is.

    Of a folder that offers one of the decoders trained here, a part is what plays its role there: a folder of a family
    holds several Transformers, and `model` is but one of them.
    """
    found, there = _loaded(path, tokenizer), ModelFolder(resolve(path)).decoders
    played = next((there[name].parts for name in decoders if name in there), {})
    given = {role: played.get(role, role) for role in parts}
    shared = [role for role in parts if given[role] in found and any(True for _ in parts[role].module.parameters())]
    if not shared:
        raise OptionError(f"{path}: expected one of the parts {', '.join(parts)} to start from, found none.")
    for role in shared:
        module, state = parts[role].module, found[given[role]].state_dict()
        additions = PARTS[parts[role].kind].additions
        absent = [each for each in module.state_dict() if each not in state]
        new = [each for each in absent if any(fnmatchcase(each, addition) for addition in additions)]
        report = warm_start(module, state, allow_missing=new)
        anew = f", {', '.join(report.missing)} begun anew" if report.missing else ""
        tell.message(
            f"Warm start of {role!r} from {given[role]!r} of {path}: {len(report.copied)} weights copied{anew}."
        )


def _validators(recipe: Recipe, tokenizer: Tokenizer, longest: int, device: torch.device) -> list[Validator]:
    options = recipe.validation
    if options.metric == "none":
        return []
    if recipe.data.task == "files":
        pairs = list(read_parallel(*required(recipe.data, "valid")))
    else:
        pairs = list(generated(recipe.data, "valid"))
    pairs = pairs[: options.sentences]
    ids = [row[: longest - 1] for row in tokenizer.encode_for_batches([source for source, _ in pairs])]
    order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
    references = [tokenizer.as_decoded(target) for _, target in pairs]
    rouge = Rouge() if options.metric == "rouge" else None  # refused now, if the package is missing
    decode = _decoder(recipe, device, Limits(max_length=min(Limits().max_length, longest - 1)))

    def score(model: nn.Module) -> float:
        outputs = [""] * len(ids)
        for start in range(0, len(order), options.batch):
            group = order[start : start + options.batch]
            tokens = decode(model, Source.of([[*ids[index], tokenizer.special.eos] for index in group]))
            for index, text in zip(group, tokenizer.decode_many(tokens), strict=True):
                outputs[index] = text
        if options.metric == "exact":
            return sum(a == b for a, b in zip(outputs, references, strict=True)) / len(references)
        return (rouge or translation_metrics(references)[0]).score(outputs, references).value

    every = options.every or recipe.training.validate_every
    return [Validator(options.metric, every, True, score)]


def _decoder(recipe: Recipe, device: torch.device, limits: Limits) -> Callable[[nn.Module, Source], list[list[int]]]:
    """How the model being trained is decoded: by the first decoder of its objective, with that decoder's defaults."""
    kind, _ = _objective(recipe)
    name = kind.decoders[0]
    runner = EagerRunner(device, "fp32")
    found = DECODERS[name]

    def decode(model: nn.Module, source: Source) -> list[list[int]]:
        parts = {name: part.module for name, part in kind.parts(model).items()}
        decoder = found.build(parts, runner, found.options())
        return decoder.decode(source, limits).tokens

    return decode
