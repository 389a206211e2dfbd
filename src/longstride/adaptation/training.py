"""Stage 2: a linked drafter is trained on the frozen model, on the model's own outputs.

The schedule has to fit the time there is: how many updates that is, is estimated before (:mod:`.timing`) and while it
trains, and every estimate is kept (updates.json), so that a run which is cut and goes on is the same run.
The weights at the end are the mean of the last five of twenty checkpoints: of the last quarter, no earlier.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import torch

from longstride import model_folder
from longstride.adaptation.options import AdaptOptions
from longstride.adaptation.timing import trial, with_threads
from longstride.adaptation.work import Work
from longstride.contract import Objective, OptionError
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
from longstride.training.metrics import Reporter, Silent
from longstride.training.options import AdamOptions, Schedule, TrainingOptions
from longstride.training.pace import Estimate, Pace

VERIFIER, DRAFTER, SHORTLIST = "model", "drafter", "shortlist"
OBJECTIVE = DrafterObjectiveOptions(glance_first=0.0, glance_last=0.0, blocks=3, decay=0.9)
"""What short runs learnt most by: no glancing, three blocks of every target, early slots first (docs/log.md)."""
FEWEST = 20
"""Updates that minutes come to, however few these are"""
CHECKPOINTS, AVERAGED = 20, 5
FEW_TOKENS = 512
"""Padded tokens of an update on a processor: in a few minutes, many small updates teach more than few large ones."""
APART = 30.0
"""Seconds between two checkpoints at least, where it was measured how long an update takes"""
LARGE, KEPT = 32_768, 16_384
"""Of a vocabulary larger than the first, a drafter keeps the second: its most frequent ids."""
WARMUP = 500
"""Updates of rising rates, at most; no more than a tenth of all."""
AGAIN = 0.7
"""The share of the highest learning rate that a drafter which was trained before goes on with."""


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
        "decoder_layers": options.layers or (2 if verifier.decoder_layers >= 4 else 1),
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
    built, again = _built(kind, folder, pairs, options)
    if again:
        tell.message("The drafter that is there is trained on.")
    objective = kind.build(replace(OBJECTIVE, distance=options.distance))
    objective.special = folder.special
    longest = max(int(side.lengths.max()) for side in (pairs.source, pairs.target))
    tokens = options.tokens or max(FEW_TOKENS, longest)
    batches = TokenBatches(pairs, BatchOptions(tokens=tokens, seed=options.seed))
    tell.message(f"{len(pairs):,} pairs; {batches.waste().sentence}")
    updates = (
        {"updates": options.updates}
        if options.updates
        else _timed(work, built, objective, batches, options, device, tell)
    )
    if updates is None:
        return None
    pace = _pace(work, updates, options)
    count = pace.first if pace else int(updates["updates"])
    each = float(updates.get("seconds_per_update", APART))
    how = training_options(count, built.model.options.width, options, device, again, each)
    into = work.folder / "training"
    with with_threads(int(updates.get("threads", torch.get_num_threads()))):
        result = Trainer(built, objective, batches, how, into, device, reporter=tell, pace=pace).run(resume=True)
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
        "passes": round(result.tokens / int(pairs.target.lengths.sum()), 2),
        "curve": curve(into / "metrics.jsonl"),
        "target_tokens": result.tokens,
        "averaged_updates": list(result.averaged),
        "kept_ids": built.drafter.options.own_vocabulary,
        "coverage": round(_coverage(built.drafter, pairs), 6),
        "weights": sum(weight.numel() for weight in built.drafter.parameters()),
        "compiling_seconds": updates.get("compiling_seconds", 0.0),
        "seconds": round(result.seconds, 1),
        "tokens_per_second": round(result.steady_tokens_per_second or result.tokens_per_second),
    }


def _timed(
    work: Work,
    built: Any,
    objective: Objective,
    batches: TokenBatches,
    options: AdaptOptions,
    device: torch.device,
    tell: Reporter,
) -> dict[str, Any] | None:
    """Compile for this process, and estimate the number of updates unless that was done; None if asked to stop."""
    known, seconds = work.found("updates"), 60 * options.minutes
    compiles = device.type == "cuda" or options.compile != "none"
    if known is not None and not compiles:
        return known
    tell.message("Compiling." if compiles else "Measuring how long an update takes.")
    how = training_options(1, built.model.options.width, options, device)
    canvas = built.drafter.options.block * OBJECTIVE.blocks
    found = trial(built, objective, batches, canvas, how, device, None if known else seconds)
    if found is None:
        return None
    if compiles:
        tell.message(f"Compiling (once per machine) took {found.compiling:,.0f} s, which the minutes do not count.")
    if known is not None:
        return known
    each, (least, most) = found.steady.each, found.steady.span
    count = max(FEWEST, round(seconds / each))
    took = f"An update takes {1000 * each:,.0f} ms"
    if not found.steady.agree:
        took = f"Updates took {1000 * least:,.0f} to {1000 * most:,.0f} ms, which did not settle"
    fit = f"about {count:,} fit into {options.minutes:g} minutes"
    if count * each > 1.05 * seconds:
        fit = f"{FEWEST} updates are the fewest; they take about {max(0.1, count * each / 60):,.1f} minutes here"
    tell.message(f"{took}; {fit}; the number is corrected while training.")
    figures = {"updates": count, "seconds_per_update": round(each, 6), "compiling_seconds": round(found.compiling, 1)}
    if device.type == "cpu":
        figures["threads"] = found.threads  # decides bits, so that a resumed run has to have as many
    return work.finish("updates", {**figures, "estimates": [astuple(Estimate(0, 0.0, count))]})


def _pace(work: Work, updates: dict[str, Any], options: AdaptOptions) -> Pace | None:
    """Return the pace that ends the training when the minutes are over; None if the number of updates is given."""
    if "estimates" not in updates:
        return None

    def keep(estimates: Sequence[Estimate]) -> None:
        told = {"updates": estimates[-1].updates, "estimates": [astuple(one) for one in estimates]}
        work.finish("updates", {**updates, **told})

    estimates = [Estimate(*one) for one in updates["estimates"]]
    return Pace(60 * options.minutes, estimates, keep, FEWEST)


def curve(metrics: Path, points: int = 10) -> list[dict[str, float]]:
    """Return the mean loss and the mean number of right drafted tokens for each of some parts of a training."""
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    records = [line for line in lines if line["kind"] == "training" and line["loss"] is not None]
    found = []
    for part in range(points):
        some = records[part * len(records) // points : (part + 1) * len(records) // points]
        if some:
            loss, right = (
                statistics.fmean(values)
                for values in zip(*((one["loss"], one["figures"]["run"]) for one in some), strict=True)
            )
            found.append({"updates": some[-1]["step"], "loss": round(loss, 4), "right": round(right, 4)})
    return found


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
