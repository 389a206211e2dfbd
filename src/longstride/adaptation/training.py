"""Stage 2: a linked drafter is trained on the frozen model, on the model's own outputs.

The schedule has to fit the time there is: how long an update takes is measured once, on updates that are thrown away,
and the number of updates that follows is kept (updates.json), so that a run which is cut and goes on is the same run.
The weights at the end are the mean of the last five of twenty checkpoints: of the last quarter, no earlier.
"""

from __future__ import annotations

import math
import shutil
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longstride import model_folder
from longstride.adaptation.options import AdaptOptions
from longstride.adaptation.work import Work
from longstride.contract import OptionError
from longstride.model_folder import STORED, DecoderConfig, ModelFolder, Part
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.objectives import OBJECTIVES, ObjectiveKind, Plan
from longstride.ops import avoid_planned_attention
from longstride.ops.cuda.table import training_table
from longstride.ops.kernels import train_with
from longstride.registry import DECODERS, part_builder
from longstride.systems.draft_verify.kept import count_ids
from longstride.systems.draft_verify.objective import DrafterObjectiveOptions
from longstride.systems.draft_verify.shortlist_counts import count as count_shortlist
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus
from longstride.training.loop import Trainer
from longstride.training.metrics import Record, Reporter, Silent
from longstride.training.options import AdamOptions, Schedule, TrainingOptions

VERIFIER, DRAFTER, SHORTLIST = "model", "drafter", "shortlist"
OBJECTIVE = DrafterObjectiveOptions(glance_first=0.0, glance_last=0.0, blocks=3, decay=0.9)
"""What short runs learnt most by: no glancing, three blocks of every target, early slots first (docs/log.md)."""
FEWEST = 20
"""Updates that minutes come to, however few these are"""
CHECKPOINTS, AVERAGED = 20, 5
APART = 30.0
"""Seconds between two checkpoints at least, where it was measured how long an update takes"""
LARGE, KEPT = 32_768, 16_384
"""Of a vocabulary larger than the first, a drafter keeps the second: its most frequent ids."""
WARMUP = 500
"""Updates of rising rates, at most; no more than a tenth of all."""
AGAIN = 0.7
"""The share of the highest learning rate that a drafter which was trained before goes on with."""
TRIAL_UPDATES, TRIAL_SHARE = 60, 0.1
"""Updates that are timed, and the share of the minutes that they may take."""


def kept_ids(vocabulary: int, options: AdaptOptions) -> int | None:
    """How many ids the drafter has of its own, at most; None: the model's."""
    if options.vocabulary:
        return options.vocabulary
    return KEPT if vocabulary > LARGE else None


def drafter_settings(verifier: TransformerOptions, options: AdaptOptions) -> dict[str, Any]:
    """A drafter as wide as the model and as like it as drafters can be, so that it can begin with its weights."""
    heads = verifier.heads if verifier.width % verifier.heads == 0 else max(1, verifier.width // 64)
    own = options.own_encoder_layers
    return {
        "block": options.block,
        "width": verifier.width,
        "feed_forward": verifier.feed_forward,
        "heads": heads,
        "encoder": "partial" if own else "shared",
        **({"encoder_layers": own} if own else {}),
        "decoder_layers": options.layers,
        "link": options.link or max(1, min(64, verifier.width // 8)),
        "positions": verifier.positions if verifier.positions == "learned" else "sinusoidal",
        "add_positions": "first",
        "scale_embeddings": verifier.scale_embeddings,
        "norm": verifier.norm,
        "activation": "gelu" if verifier.activation == "gelu-tanh" else verifier.activation,
        "longest": verifier.longest,
        "soft_copy": verifier.source_vocabulary in (None, verifier.vocabulary),
        "dropout": 0.1,
        "begin": "verifier",
        **({"kept": kept} if (kept := kept_ids(verifier.vocabulary, options)) else {}),
    }


def training_options(
    updates: int,
    width: int,
    options: AdaptOptions,
    device: torch.device,
    again: bool = False,
    each: float = APART,
) -> TrainingOptions:
    """Up to the peak in a tenth of the updates, then straight down to zero at the last; `again`: of a drafter that was
    trained before; `each`: seconds that an update takes."""
    gpu = device.type == "cuda"
    every = min(updates, max(-(-updates // CHECKPOINTS), math.ceil(APART / each)))
    averaged = min(AVERAGED, 1 + updates // (4 * every))  # of the last quarter
    return TrainingOptions(
        steps=updates,
        clip=1.0,
        schedule=Schedule(
            kind="linear",
            peak=options.peak or (AGAIN if again else 1.0) * 1e-3 * math.sqrt(512 / width),
            warmup=min(WARMUP, max(1, updates // 10)),
        ),
        optimizer=AdamOptions(beta2=0.98),
        precision="bf16" if gpu else "fp32",
        compile="layers" if options.compile == "layers" else "none",
        seed=options.seed,
        checkpoint_every=every,
        keep=averaged,
        average="last",
        average_count=averaged,
        log_every=max(1, min(50, updates // CHECKPOINTS)),
    )


def verifier_part(folder: ModelFolder) -> str:
    """The part that greedy search of a folder runs."""
    if "greedy" not in folder.decoders:
        raise OptionError(
            f"{folder.path}: expected a model with greedy search, which drafts are verified by, "
            f"found {', '.join(folder.decoders)}."
        )
    return str(folder.decoders["greedy"].parts["model"])


def train(
    work: Work,
    model: Path,
    pairs: BinarizedCorpus,
    options: AdaptOptions,
    device: torch.device,
    reporter: Reporter | None = None,
) -> dict[str, Any] | None:
    """Train to the end and write the folder `drafted`; None where somebody asked to stop, to go on another time."""
    tell = reporter or Silent()
    avoid_planned_attention()
    train_with(training_table(("attention", "norms")))
    kind = OBJECTIVES["drafter"]
    folder = ModelFolder(model)
    updates = work.found("updates")
    if updates is None:
        if options.updates:
            updates = {"updates": options.updates}
        else:
            tell.message("Measuring how long an update takes.")
            built, _ = _built(kind, folder, pairs, options)
            updates = _fitting(work.folder / "trial", built, kind, folder, pairs, options, device)
            if updates is None:
                return None
            if updates["updates"] == FEWEST:
                took = FEWEST * updates["seconds_per_update"] / 60
                tell.message(f"{FEWEST} updates are the fewest; they take about {max(0.1, took):,.1f} minutes here.")
        updates = work.finish("updates", updates)
    count, each = int(updates["updates"]), float(updates.get("seconds_per_update", APART))
    built, again = _built(kind, folder, pairs, options)
    if again:
        tell.message("The drafter that is there is trained on.")
    batches = TokenBatches(pairs, BatchOptions(tokens=options.tokens, seed=options.seed))
    tell.message(f"{count:,} updates on {len(pairs):,} pairs; {batches.waste().sentence}")
    width = built.model.options.width
    result = _trainer(
        built,
        kind,
        folder,
        batches,
        training_options(count, width, options, device, again, each),
        work.folder / "training",
        device,
        tell,
        options.distance,
    ).run(resume=True)
    if result.interrupted:
        return None
    listed = {}
    if options.shortlist:
        tell.message("Counting the shortlist that trees are drafted from on processors.")
        counted = count_shortlist(pairs, *folder.tokenizers(), options.shortlist, folder.special, device=device)
        listed = {SHORTLIST: Part(SHORTLIST, counted.options, counted)}
    _write(work.folder / "drafted", {**kind.parts(built.cpu()), **listed}, folder)
    return {
        "updates": result.step,
        "begun_with": "its drafter" if again else "its weights",
        "epochs": result.epoch,
        "target_tokens": result.tokens,
        "averaged_updates": list(result.averaged),
        "kept_ids": built.drafter.options.own_vocabulary,
        "coverage": round(_coverage(built.drafter, pairs), 6),
        "weights": sum(weight.numel() for weight in built.drafter.parameters()),
        "seconds": round(result.seconds, 1),
        "tokens_per_second": round(result.steady_tokens_per_second or result.tokens_per_second),
    }


def _coverage(drafter: Any, pairs: BinarizedCorpus) -> float:
    """The share of the target tokens that can be drafted."""
    if drafter.kept_ids is None:
        return 1.0
    counts = count_ids(pairs.target.ids, drafter.options.vocabulary)
    kept = torch.zeros_like(counts).index_fill_(0, drafter.kept_ids.cpu(), 1)
    return float((counts * kept).sum() / counts.sum())


def _built(kind: ObjectiveKind, folder: ModelFolder, pairs: BinarizedCorpus, options: AdaptOptions) -> tuple[Any, bool]:
    """The drafter beside the frozen model, always with the same first weights; and whether they were trained before."""
    part = verifier_part(folder)
    verifier = folder.load(part, part_builder(folder, part))
    if type(verifier) is not Transformer:
        raise OptionError(f"{folder.path}: expected a Transformer to be adapted, found {folder.parts[part].kind}.")
    torch.manual_seed(options.seed)
    settings = drafter_settings(verifier.options, options)
    built: Any = kind.model(
        Plan(
            settings,
            verifier.options.vocabulary,
            {VERIFIER: verifier},
            str(folder.path),
            special=folder.special,
            targets=pairs.target.ids,
        )
    )
    if options.begin == "model" or DRAFTER not in folder.parts or folder.parts[DRAFTER].kind != DRAFTER:
        return built, False
    theirs: Any = folder.load(DRAFTER, part_builder(folder, DRAFTER))
    if replace(theirs.options, begin=built.drafter.options.begin) != built.drafter.options:
        return built, False
    built.drafter.load_state_dict(theirs.state_dict())
    return built, True


def _trainer(
    built: nn.Module,
    kind: ObjectiveKind,
    folder: ModelFolder,
    batches: TokenBatches,
    options: TrainingOptions,
    into: Path,
    device: torch.device,
    reporter: Reporter,
    distance: float,
) -> Trainer:
    objective = kind.build(replace(OBJECTIVE, distance=distance))
    objective.special = folder.special
    return Trainer(built, objective, batches, options, into, device, reporter=reporter)


class _Times(Silent):
    """When each update was done."""

    def __init__(self) -> None:
        self.readings: list[float] = []

    def record(self, record: Record) -> None:
        self.readings.append(time.perf_counter())


def _fitting(
    into: Path,
    built: Any,
    kind: ObjectiveKind,
    folder: ModelFolder,
    pairs: BinarizedCorpus,
    options: AdaptOptions,
    device: torch.device,
) -> dict[str, Any] | None:
    """As many updates as fit into the minutes, by the time that some take after the first ones; None if cut."""
    shutil.rmtree(into, ignore_errors=True)
    begun, times = time.perf_counter(), _Times()
    how = training_options(TRIAL_UPDATES, built.model.options.width, options, device)
    how = replace(how, log_every=1, checkpoint_every=10**9, max_minutes=max(0.05, TRIAL_SHARE * options.minutes))
    batches = TokenBatches(pairs, BatchOptions(tokens=options.tokens, seed=options.seed))
    result = _trainer(built, kind, folder, batches, how, into, device, times, options.distance).run()
    shutil.rmtree(into, ignore_errors=True)
    if result.interrupted:
        return None
    taken = [after - before for before, after in zip(times.readings, times.readings[1:], strict=False)]
    each = statistics.median(taken[len(taken) // 2 :]) if taken else time.perf_counter() - begun
    # Compiling is done once: where it takes most of a few minutes, half of them are left for training all the same.
    left = 60 * max(options.minutes - (time.perf_counter() - begun) / 60, options.minutes / 2)
    return {"updates": max(FEWEST, int(0.95 * left / each)), "seconds_per_update": round(each, 6)}


def _write(path: Path, parts: dict[str, Part], folder: ModelFolder) -> None:
    """The model as it was, the drafter, and the words that it drafts from on processors."""
    source, target = folder.tokenizers()
    decoders = {name: DecoderConfig(DECODERS[name].played_by(parts)) for name in ("draft-verify", "draft")}
    for name in ("greedy", "beam"):
        if name in folder.decoders:
            decoders[name] = DecoderConfig({"model": VERIFIER}, folder.decoders[name].defaults)
    model_folder.write(
        path,
        parts,
        decoders,
        "draft-verify",
        target,
        source,
        dtype=STORED[folder.stored(verifier_part(folder))],
        limits=folder.config.limits,
        sentences=folder.config.sentences,
    )
