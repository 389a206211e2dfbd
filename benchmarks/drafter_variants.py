"""What each way of training a drafter brings: tokens an iteration, counted on outputs that it never saw.

Lossless outputs are greedy's, so that no decoding is needed: with the verifier's own outputs as prefixes, a block is
drafted after every token, and how far each stands gives every iteration there would be. Chains and trees alike.

    python benchmarks/drafter_variants.py decode MODEL OUT debates=FILE[.xz][:LINES] everyday=FILE ...
    python benchmarks/drafter_variants.py train MODEL OUT RECORDS --updates N NAME[=SET,...][:OPTION=VALUE;...] ...
    python benchmarks/drafter_variants.py count MODEL OUT SET ...
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from longstride.adaptation import training
from longstride.adaptation.decoding import corpus, own_greedy
from longstride.adaptation.options import AdaptOptions
from longstride.contract import SpecialIds
from longstride.contract.options import parse
from longstride.distillation.distill import distill_lines
from longstride.distillation.options import DistillOptions
from longstride.model_folder import ModelFolder
from longstride.objectives import OBJECTIVES, Plan
from longstride.ops import avoid_planned_attention
from longstride.ops.cuda.table import training_table
from longstride.ops.kernels import train_with
from longstride.registry import part_builder
from longstride.runtime.choosing import check_device
from longstride.systems.draft_verify.model import Drafter
from longstride.systems.draft_verify.objective import DrafterWithVerifier
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus, Side, offsets_of
from longstride.training.loop import Trainer
from longstride.translator import load as open_translator

TREES = (16, 32)


def decode(model: Path, out: Path, files: list[str], device: torch.device) -> None:
    """The model's own greedy outputs of every file."""
    gpu = device.type == "cuda"
    translator = open_translator(
        str(model), device=str(device), precision="fp16" if gpu else "fp32", runtime="cuda-graph" if gpu else "eager"
    )
    for given in files:
        name, _, rest = given.partition("=")
        path, _, most = rest.partition(":")
        with lzma.open(path, "rt") if path.endswith(".xz") else open(path) as file:  # type: ignore[operator]
            lines = [line.strip() for line in islice(file, int(most) if most else None)]
        lines = [line for line in dict.fromkeys(lines) if line]
        options = DistillOptions(
            keep_all=True, shard_lines=25_000, capacity=1024 if gpu else 16, longest_source=translator.longest
        )
        begun = time.perf_counter()
        distill_lines(own_greedy(translator), lines, out / name, options, resume=True, name="own greedy")
        save(corpus([(translator, out / name)], 128), out / f"{name}.npz")
        print(f"{name}: {len(lines)} lines in {time.perf_counter() - begun:.0f} s", flush=True)


def save(pairs: BinarizedCorpus, path: Path) -> None:
    """For the next start."""
    sides = {"source": pairs.source, "target": pairs.target}
    np.savez(
        path,
        **{f"{name}_ids": side.ids for name, side in sides.items()},
        **{f"{name}_lengths": side.lengths for name, side in sides.items()},
    )


def load(paths: list[Path], special: SpecialIds) -> BinarizedCorpus:
    """All pairs of several files."""
    found = [np.load(path) for path in paths]

    def side(name: str) -> Side:
        ids, lengths = (np.concatenate([part[f"{name}_{what}"] for part in found]) for what in ("ids", "lengths"))
        return Side(ids, offsets_of(lengths), special)

    return BinarizedCorpus(side("source"), side("target"))


@torch.inference_mode()
def tokens_per_iteration(
    model: Any, pairs: BinarizedCorpus, device: torch.device, tokens: int = 1500
) -> dict[str, float]:
    """Tokens, EOS counted, an iteration with chains and with trees."""
    drafter: Drafter = model.drafter
    model.eval()
    block = drafter.options.block
    made: dict[str, list[int]] = {"chain": [0, 0], **{f"tree {nodes}": [0, 0] for nodes in TREES}}
    batches = TokenBatches(pairs, BatchOptions(tokens=tokens, shuffle=False))
    objective = OBJECTIVES["drafter"].build(training.OBJECTIVE)
    objective.special = pairs.target.special
    for batch in batches.epoch(0):
        prepared = objective.prepare(batch, torch.Generator().manual_seed(0)).to(device)
        source, target = prepared.tensors["source"], prepared.tensors["target"]
        lengths, visible = prepared.tensors["target_lengths"], prepared.source_mask
        rows, longest = target.shape
        cuts = torch.arange(longest, device=device).expand(rows, -1)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            states = model.model.encode(source, visible)
            filled = torch.full((rows, longest * block), drafter.mask, device=device)
            given = (source, visible, None if drafter.options.encoder == "own" else states)
            hidden = drafter.several(target, cuts, filled, *given).reshape(rows * longest, block, -1)
            before = F.pad(target, (1, 0), value=drafter.special.start)[:, :longest].reshape(-1)
            ahead = F.pad(target, (0, block), value=-1).unfold(1, block, 1)[:, :longest].reshape(-1, block)
            stands = {"chain": _chain(drafter, hidden, before, ahead)}
            for nodes in TREES:
                stands[f"tree {nodes}"] = _tree(drafter, hidden, before, ahead, nodes)
        ends = lengths.tolist()
        for name, stand in stands.items():
            each = stand.view(rows, longest).tolist()
            for row, end in zip(each, ends, strict=True):
                place = 0
                while place < end:
                    place += min(row[place] + 1, end - place)
                    made[name][1] += 1
                made[name][0] += end
    return {name: round(tokens / max(1, steps), 3) for name, (tokens, steps) in made.items()}


def _chain(drafter: Drafter, hidden: Tensor, before: Tensor, ahead: Tensor) -> Tensor:
    found = drafter.followed(hidden, ahead, before, before) if drafter.link else drafter.logits(hidden).argmax(-1)
    return (found == ahead).long().cumprod(1).sum(1)


def _tree(drafter: Drafter, hidden: Tensor, before: Tensor, ahead: Tensor, nodes: int) -> Tensor:
    deepest = []
    for part, first, wanted in zip(hidden.split(256), before.split(256), ahead.split(256), strict=True):
        ids, parents = drafter.grown(part, wanted, first, first, nodes)
        stands = torch.zeros(len(ids), nodes + 1, dtype=torch.bool, device=ids.device)
        depth = torch.zeros(len(ids), nodes + 1, dtype=torch.int64, device=ids.device)
        stands[:, 0] = True
        for node in range(nodes):
            parent = parents[:, node, None]
            at = depth.gather(1, parent)
            right = (ids[:, node, None] == wanted.gather(1, at.clamp(max=wanted.shape[1] - 1))) & (at < wanted.shape[1])
            stands[:, node + 1] = (right & stands.gather(1, parent))[:, 0]
            depth[:, node + 1] = at[:, 0] + 1
        deepest.append(torch.where(stands, depth, 0).amax(1))
    return torch.cat(deepest)


def train(
    model: Path, out: Path, records: Path, variant: str, updates: int, device: torch.device, judged: list[str]
) -> None:
    """One drafter, trained and counted."""
    named, _, settings = variant.partition(":")
    name, _, folders = named.partition("=")
    values = dict(pair.split("=") for pair in settings.split(";") if pair)
    of_objective = {key: values.pop(key) for key in ("distance", "decay", "blocks") if key in values}
    begun = values.pop("from", "")
    options = parse(AdaptOptions, {"updates": int(values.pop("updates", updates)), **values}, "adapt").on(device.type)
    folder = ModelFolder(model)
    pairs = load([out / f"{part}.npz" for part in (folders or "debates").split(",")], folder.special)
    avoid_planned_attention()
    train_with(training_table(("attention", "norms")))
    kind, part = OBJECTIVES["drafter"], training.verifier_part(folder)
    verifier = folder.load(part, part_builder(folder, part))
    torch.manual_seed(options.seed)
    shape = training.drafter_settings(verifier.options, options)
    plan = Plan(
        shape, verifier.options.vocabulary, {training.VERIFIER: verifier}, str(folder.path), special=folder.special
    )
    built: Any = kind.model(replace(plan, targets=pairs.target.ids))
    if begun:  # another folder's drafter, trained on
        built.drafter.load_state_dict(load_file(Path(begun) / "drafter.safetensors"))
    how = training.training_options(options.updates, built.model.options.width, options, device)
    changed: dict[str, Any] = {
        key: int(value) if key == "blocks" else float(value) for key, value in of_objective.items()
    }
    objective = kind.build(replace(training.OBJECTIVE, **changed))
    objective.special = folder.special
    batches = TokenBatches(pairs, BatchOptions(tokens=options.tokens, seed=options.seed))
    result = Trainer(built, objective, batches, how, out / name, device).run(resume=True)
    training._write(out / f"{name}.model", kind, built, folder)
    built.to(device)
    found = {each: tokens_per_iteration(built, load([out / f"{each}.npz"], folder.special), device) for each in judged}
    record = {
        "variant": name,
        "settings": settings,
        "folders": folders or "debates",
        "updates": result.step,
        "seconds": round(result.seconds, 1),
        "target_tokens": result.tokens,
        "weights": sum(weight.numel() for weight in built.drafter.parameters()),
        "tokens_per_iteration": found,
    }
    with records.open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(json.dumps(record), flush=True)


def count(model: Path, out: Path, judged: list[str], device: torch.device) -> None:
    """A model folder's own drafter."""
    folder = ModelFolder(model)
    parts = [folder.load(part, part_builder(folder, part)) for part in (training.verifier_part(folder), "drafter")]
    built = DrafterWithVerifier(*parts).to(device)  # type: ignore[arg-type]
    for name in judged:
        found = tokens_per_iteration(built, load([out / f"{name}.npz"], folder.special), device)
        print(name, json.dumps(found), flush=True)


def main() -> None:
    """By hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("decode", "train", "count"):
        sub = commands.add_parser(command)
        sub.add_argument("model", type=Path)
        sub.add_argument("out", type=Path)
        if command == "train":
            sub.add_argument("records", type=Path)
            sub.add_argument("--updates", type=int, default=1500)
            sub.add_argument("--judged", default="debates-test")
        sub.add_argument("--device", default="auto")
        sub.add_argument("what", nargs="+")
    given = parser.parse_args()
    device = check_device(given.device)
    if given.command == "decode":
        decode(given.model, given.out, given.what, device)
        return
    if given.command == "count":
        count(given.model, given.out, given.what, device)
        return
    for variant in given.what:
        judged = given.judged.split(",")
        train(given.model, given.out, given.records, variant, given.updates, device, judged)


if __name__ == "__main__":
    main()
