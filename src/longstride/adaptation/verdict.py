"""Tells an undertrained drafter from one that cannot pay, and says what to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longstride.adaptation.options import AdaptOptions
from longstride.bench.comparison import paired_times, speed_up
from longstride.bench.records import Latency, Record
from longstride.verification.draft_policy import DraftPolicy

FLAT = 0.02
"""Growth of drafts, or fall of the loss, in the last quarter of a training, below which nothing more is learnt"""
FEW_PASSES, MANY_PASSES = 3, 30
"""Over the lines: with fewer a training was too short, with more the lines are few."""
UNSEEN = 0.8
"""Drafts for held-out lines, as a share of drafts for learnt lines, below which more or other text is missing"""
HARDLY = 0.6
"""The share of the most tokens of an iteration above which drafts hardly bring what an iteration costs"""
ENOUGH_PAIRS = 8
"""The fewest sentences, or batches, that an interval is drawn from"""
LONGER, MINUTES = 4, 20
"""A longer training: a multiple of the minutes or updates, and the fewest minutes"""


def over_greedy(record: Latency, greedy: Latency) -> str:
    """Return the speed over greedy search, with a 95 % interval if there are enough readings."""
    ratio = speed_up(record, greedy)
    if ratio is None or record is greedy:
        return "1.00" if record is greedy else ""
    if len(paired_times(record, greedy)) < ENOUGH_PAIRS:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def last_quarter(curve: Sequence[Mapping[str, float]]) -> tuple[float, float] | None:
    """Return the relative change of the loss and of the right drafted tokens; None if the training was too short."""
    if len(curve) < 3:
        return None
    before, after = curve[-3], curve[-1]  # tenths, whose middles are at 75 and 95 %
    return tuple(after[name] / max(before[name], 1e-9) - 1 for name in ("loss", "right"))  # type: ignore[return-value]


def steps_of_an_iteration(stages: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the time of an iteration with a draft in steps of greedy search, one sentence at a time, if known."""
    times, exact = stages["lengths"].get("milliseconds", {}).get("1", {}), _one_at_a_time(stages)
    drafted = f"{exact['tree']}tree" if exact.get("tree") else str(exact.get("k"))
    if not times.get("0") or drafted not in times:
        return None
    return float(exact["tokens_per_iteration"] * times[drafted] / times["0"])


def _most_tokens(stages: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the tokens of an iteration if every draft stood: a draft and the model's own next token, or an output."""
    decoded, exact = stages["decode"], _one_at_a_time(stages)
    output = decoded["tokens"] / max(1, decoded["kept"]) + 1  # EOS
    return float(min(output, int(exact.get("k", 10**6)) + 1))


def _one_at_a_time(stages: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((found for size, found in stages["exactness"].items() if size != "seconds"), {})


def verdict(
    stages: Mapping[str, Mapping[str, Any]], pays: bool, records: Sequence[Record], options: AdaptOptions
) -> str:
    """Return some sentences: what the training brought, whether it was long enough, and what to try."""
    trained, tokens = stages["train"], float(_one_at_a_time(stages).get("tokens_per_iteration", 0.0))
    curve, passes = trained.get("curve", []), float(trained.get("passes", trained["epochs"]))
    policy = DraftPolicy.from_text(stages["lengths"]["lengths"])
    change, ratio = last_quarter(curve), _ratio(records) if policy.nodes(1) or policy.length(1, 1) else ""
    learning = change is None or passes < FEW_PASSES or change[1] > FLAT or change[0] < -FLAT
    raced = f", {ratio} times greedy search one at a time," if ratio else ""
    grew = (
        f"; in the last quarter the loss changed by {change[0]:+.1%}, right tokens by {change[1]:+.0%}"
        if change
        else ""
    )
    about = f"{tokens:.2f} tokens an iteration{raced} after {trained['updates']:,} updates, {passes:,.1f} passes"
    steps, most = steps_of_an_iteration(stages), _most_tokens(stages)
    cannot = not pays and steps is not None and steps > HARDLY * most
    if pays and options.lengths is not None:
        found = ["Drafts have the lengths that were asked for."]
    elif pays:
        found = ["Drafts pay here."]
    elif cannot:
        found = ["Drafts can hardly pay on this device, however long they are trained."]
    elif learning:
        found = ["The drafter is undertrained, which says nothing against drafts."]
    else:
        found = ["Drafts do not pay here."]
    found.append(f"They bring {about} over the lines{grew}.")
    if not pays and steps is not None:
        found.append(
            f"An iteration with a draft takes as long as {steps:.1f} steps of greedy search and has to bring more "
            f"tokens, of which the lengths of outputs and drafts allow {most:.1f}."
        )
    advice = []
    if learning and options.updates and not cannot:
        advice.append(f"`--updates {LONGER * trained['updates']}`")
    elif learning and not cannot:
        advice.append(f"`--minutes {max(MINUTES, LONGER * options.minutes):g}`")
    if passes > MANY_PASSES:
        advice.append("more lines")
    if curve and tokens < UNSEEN * (1 + curve[-1]["right"]):
        advice.append("more lines like those held out, the last of the text, for which drafts are shorter")
    return " ".join([*found, *([f"To try: {'; '.join(advice)}."] if advice else [])])


def _ratio(records: Sequence[Record]) -> str:
    timed = [one for one in records if isinstance(one, Latency) and one.batch_kind == "closed" and one.batch_size == 1]
    ours = {one.candidate: one for one in timed}
    return over_greedy(ours["draft-verify"], ours["greedy"]) if {"draft-verify", "greedy"} <= ours.keys() else ""
