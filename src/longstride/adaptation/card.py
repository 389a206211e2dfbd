"""The card of an adapted model, made from records: what it is, how much it drafts, how fast it is, how exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longstride.adaptation.verdict import over_greedy
from longstride.bench.records import Exactness, Latency, Record
from longstride.model_folder import ModelFolder
from longstride.version import __version__

FILE = "README.md"


def sentence(stage: str, found: Mapping[str, Any]) -> str:
    """What a stage found, in a line."""
    if stage == "import":
        return str(found.get("told", ""))
    if stage == "decode":
        more = f"; {found['left_out']:,} more lines are left out of so short a training" if found["left_out"] else ""
        further = f", {n:,} of them for lines made of your clauses" if (n := found.get("further")) else ""
        return f"{found['kept']:,} outputs of the model's own{further}, {found['tokens']:,} tokens{more}"
    if stage == "train":
        speed = f"{found['tokens_per_second']:,} target tokens/s"
        return f"{found['updates']:,} updates, {found['weights'] / 1e6:.1f} M weights in the drafter, {speed}"
    if stage == "lengths":
        return f"tokens drafted by sentences side by side: {found['lengths']}"
    if stage == "exactness":
        sizes = {size: each for size, each in found.items() if size != "seconds"}
        return "; ".join(
            f"batch size {size}: {each['differing']} of {each['sentences']:,} outputs differ from greedy at the same "
            f"step shape, {each['tokens_per_iteration']:.2f} tokens an iteration"
            for size, each in sizes.items()
        )
    if stage == "race":
        sizes = {size: each for size, each in found.items() if size != "seconds"}
        told = (
            f"batch size {size}: " + ", ".join(f"{name} {ms:.2f}" for name, ms in each.items())
            for size, each in sizes.items()
        )
        return f"milliseconds a sentence, {'; '.join(told)}" if sizes else "not run"
    return f"the default decoder is {found['default']}. {found.get('verdict', '')}".rstrip(". ")


def race_figures(records: Sequence[Latency]) -> dict[str, Any]:
    """Milliseconds a sentence, by how many are decoded at a time and by candidate."""
    found: dict[str, dict[str, float]] = {}
    for record in records:
        found.setdefault(at_a_time(record), {})[record.candidate] = round(milliseconds(record), 3)
    return found


def at_a_time(record: Latency) -> str:
    """The batch size; open batches are what lines of a file are decoded in, others taking the places of those done."""
    return f"{record.batch_size}, lines of a file" if record.batch_kind == "open" else str(record.batch_size)


def milliseconds(record: Latency) -> float:
    """Per sentence, the mean over all passes."""
    passes = record.latencies_us
    return sum(map(sum, passes)) / len(passes) / len(record.output_lengths) / 1000


def size_of(record: Exactness) -> str:
    """The batch size, and the languages where there are several pairs."""
    pair = record.notes.get("pair")
    return f"{record.batch_size}, {pair}" if pair else str(record.batch_size)


def _drafted(record: Exactness) -> str:
    """How much is drafted at once."""
    nodes = record.options.get("tree")
    return f"{nodes}, a tree" if nodes else str(record.options["k"])


def text(
    base: ModelFolder,
    history: Mapping[str, Any],
    stages: Mapping[str, Mapping[str, Any]],
    records: Sequence[Record],
    pays: bool,
    verdict: str,
) -> str:
    """The whole card."""
    exact = [record for record in records if isinstance(record, Exactness)]
    timed = [record for record in records if isinstance(record, Latency)]
    decoded, trained = stages["decode"], stages["train"]
    machine = (exact or timed)[0].origin.machine.device if exact or timed else "an unknown device"
    how = f"{exact[0].runtime}, {exact[0].precision}" if exact else ""
    same = "The same model, with a drafter that foresees several of its tokens: the output of greedy search, sooner."
    slower = (
        "The same model, with a drafter. As it is trained, drafts are not faster than greedy search on this device, so "
        "that greedy search is the default; `--decoder draft-verify` drafts all the same, with the same output."
    )
    asked = base.config.default_decoder
    beams = [f"- Its own settings ask for {asked}: `--decoder {asked}` is as before."] if asked != "greedy" else []
    served = history.get("languages", ())
    pairs = [f"- Pairs: {', '.join(served)}, by one drafter; draft lengths and times are those of the first."]
    left_out = (
        f"; {decoded['left_out']:,} more lines were left out of so short a training" if decoded["left_out"] else ""
    )
    further = f", {n:,} of them for lines made of the clauses of others" if (n := decoded.get("further")) else ""
    columns = (
        ["batch size", "tokens drafted", "sentences", "outputs that differ from greedy, same step shape"],
        ["from steps of one token", "tokens an iteration"],
    )
    lines = [
        f"# {history['base_name']}, adapted",
        "",
        same if pays else slower,
        "",
        verdict,
        "",
        f"- Model: {history['base_name']}, weights unchanged (sha256 {base.sha256[:12]}).",
        *beams,
        *(pairs if served else []),
        f"- Drafter: {trained['weights'] / 1e6:.1f} M weights, {trained['updates']:,} updates on {decoded['kept']:,} "
        f"outputs of the model's own greedy search{further} ({trained['seconds'] / 60:.1f} minutes{left_out}).",
        f"- It drafts {trained['kept_ids']:,} ids, which are {trained['coverage']:.2%} of what the model writes.",
        f"- Tokens drafted, by sentences decoded side by side: {stages['lengths']['lengths']}.",
        f"- Measured on {machine} ({how}), on {history['held_out']:,} lines that were not trained on.",
        f"- Made by longstride {__version__}; records of all figures: adaptation.jsonl.",
        "",
        "## Exactness and drafts",
        "",
        f"| {' | '.join([*columns[0], *columns[1]])} |",
        "|---" * 6 + "|",
    ]
    for record in exact:
        lines.append(
            f"| {size_of(record)} | {_drafted(record)} | {record.same_shape.sentences:,} | "
            f"{record.same_shape.differing} | {record.width_one.differing} | "
            f"{record.notes['counts']['tokens_per_iteration']:.2f} |"
        )
    if timed:
        lines += [
            "",
            "## Times",
            "",
            "| batch size | decoder | sentences | milliseconds a sentence | times greedy (95 % interval) |",
            "|---|---|---|---|---|",
        ]
        greedy = {at_a_time(one): one for one in timed if one.candidate == "greedy"}
        for one in timed:
            ratio = over_greedy(one, greedy[at_a_time(one)])
            who = f"{at_a_time(one)} | {one.candidate} ({one.precision}) | {len(one.output_lengths):,}"
            lines.append(f"| {who} | {milliseconds(one):.2f} | {ratio} |")
    if curve := trained.get("curve"):
        lines += ["", "## Training", "", "| updates | loss | drafted tokens that are right |", "|---|---|---|"]
        lines += [f"| {point['updates']:,} | {point['loss']:.3f} | {point['right']:.2f} |" for point in curve]
    lines += ["", "## Stages", "", "| stage | seconds |", "|---|---|"]
    lines += [f"| {stage} | {found['seconds']:,.1f} |" for stage, found in stages.items()]
    return "\n".join(lines) + "\n"
