"""The fields of records that are computed: what tables and charts show, and what they choose records by.

Each takes the view of one record; some look at the table around it. Those of a decoder's options read its signature,
``blockwise|k:8|accept:top:2|...``; those of a model read the notes that a record carries about the model's parts.
"""

from __future__ import annotations

import statistics
from typing import Any

from longstride.bench.comparison import names_model, speed_up
from longstride.bench.notes import difference_text, shown
from longstride.bench.records import Latency
from longstride.bench.statistics import per_second, summarise
from longstride.bench.view import FIELDS, View, computed
from longstride.tasks.contrastive import accuracy, by_distance

SAMPLED = " †"
PRECISIONS = ("fp64", "fp32", "fp16", "bf16", "int8")


def signature_of(record: Any) -> tuple[str, dict[str, str]]:
    """A decoder's name and its options, as its signature spells them."""
    name, *rest = record.decoder.split("|")
    return name, dict(part.partition(":")[::2] for part in rest if ":" in part)


def over(amount: float | None, number: float | None) -> float | None:
    """A ratio; none where there is nothing to divide, or to divide by."""
    return amount / number if amount is not None and number else None


def minus(one: float | None, other: float | None) -> float | None:
    """A difference; none where one side is unknown."""
    return None if one is None or other is None else one - other


# Who it is, how well it scores and what its traces add up to.
FIELDS |= {
    "record": lambda view: view.record,
    "decoder": lambda view: signature_of(view.record)[0],
    "decoder_signature": lambda view: view.record.decoder,
    "option": lambda view: signature_of(view.record)[1],
    "part": lambda view: view.record.notes.get("parts"),
    "model": lambda view: view.record.model.name,
    "model_tag": lambda view: view.record.model,
    "test_set": lambda view: view.record.workload.name,
    "machine": lambda view: view.record.origin.machine,
    "data": lambda view: str(view.record.notes.get("data", "")),
    "trained_on": lambda view: view.record.data or None,
    "distilled": lambda view: view["data"] == "distilled",
    "learnt_from": lambda view: "distilled" if view["distilled"] else "original",
    "named": lambda view: view.record.candidate + (SAMPLED if view.record.sentences is not None else ""),
    "precision_rank": lambda view: (*PRECISIONS, view.record.precision).index(view.record.precision),
    "score": lambda view: {score.name: score.value for score in view.record.scores},
    "score_named": lambda view: view["score"].get(view["score_name"]),
    "score_heading": lambda view: "repetition, %" if view["score_name"] == "repetition" else view["score_name"],
    "leading": lambda view: view.record.scores[0].name if view.record.scores else None,
    "bleu": lambda view: view.record.scores[0].value if view.record.scores else None,
    "iterations": lambda view: over(view["counts.iterations"], view["sentence_count"]),
    "calls": lambda view: over(view["counts.calls"], view["sentence_count"]),
    "tokens": lambda view: over(view["counts.tokens"], view["counts.iterations"]),
    "mean_block": lambda view: view["counts.mean_block"],
    "drafted_block": lambda view: view["counts.mean_block"] if view["counts.drafted"] else None,
    "accepted_share": lambda view: over(view["counts.accepted"], view["counts.drafted"]),
}


@computed
def sentence_count(view: View) -> int:
    """How many sentences the counts are over."""
    measured = getattr(view.record, "source_lengths", None) or view.record.sentences or ()
    return len(measured) or int(view.record.workload.size)


@computed
def model_unless_named(view: View) -> str:
    """The model, where the names of candidates do not tell it."""
    told = all(isinstance(one.record, Latency) and names_model(one.record) for one in view.scope.found)
    return "" if told else str(view["model"])


@computed
def first_baseline(view: View) -> str | None:
    """What differences are from; where the baseline was scored elsewhere, only the comparisons name it."""
    records = shown(view)
    named = [record.candidate for record in records if record.role == "baseline"]
    named += [one.baseline for record in records for one in record.against]
    return named[0] if named else None


@computed
def difference(view: View) -> str | None:
    """Of the leading score, from the first baseline."""
    return difference_text(view.record.against, first_baseline(view) or "")


@computed
def of_greedy(view: View) -> float | None:
    """The leading score in percent of that of the same model's greedy search on the same test set."""
    alike = {"decoder": "greedy", "model": view["model"], "test_set": view["test_set"]}
    greedy = next((one for one in view.scope.group if one.meets(alike)), None)
    return None if greedy is None or not greedy["bleu"] else 100 * view["bleu"] / greedy["bleu"]


@computed
def difference_from_beam(view: View) -> str | None:
    """The same, from the first beam search that it was compared with."""
    rivals = [one.baseline for one in view.record.against if "beam" in one.baseline]
    return difference_text(view.record.against, rivals[0]) if rivals else None


@computed
def reference(view: View) -> str | None:
    """Whose outputs others were compared with; none where each was compared with itself alone."""
    records = [record for record in shown(view) if record.equality is not None]
    alone = all(record.equality.reference == record.candidate for record in records)
    return None if alone else str(records[0].equality.reference)


@computed
def differing(view: View) -> str | None:
    """How many outputs are not the reference's."""
    found = view.record.equality
    if found is None or found.reference != reference(view):
        return None
    return f"{found.differing:,} of {found.compared:,}"


@computed
def chance(view: View) -> float | None:
    """That a drafted token stands at a place in the block, given that those before it did."""
    counts, place = view.record.counts, view["place"] - 1
    if place >= len(counts.reached_at):
        return None
    return over(counts.accepted_at[place] if place < len(counts.accepted_at) else 0, counts.reached_at[place])


# Times.
FIELDS |= {
    "summary": lambda view: summarise(view.record.latencies_us),
    "tokens_per_second": lambda view: per_second(sum(view.record.output_lengths), view.record.latencies_us),
    "sentences_per_second": lambda view: per_second(len(view.record.output_lengths), view.record.latencies_us),
    "speed_up": lambda view: speed_up(view.record, view["baseline"]) if view["baseline"] is not None else None,
    "one_by_one": lambda view: view.record.batch_size == 1 and not view.record.batches,
    "is_first_baseline": lambda view: view.record.candidate == view.scope.found[0]["baseline.candidate"],
}


@computed
def rate_and_ratio(view: View) -> str:
    """Sentences per second, and in brackets times the baseline's."""
    rate, ratio = view["sentences_per_second"], view["speed_up.value"]
    told = f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"
    return told if ratio is None else f"{told} ({ratio:.2f}×)"


@computed
def speed_up_at_beam(view: View) -> Any:
    """Over the autoregressive decoder of the same run with the same beam."""
    run = [View(record, view.scope) for record in view["run"].records]
    rivals = [one for one in run if one["decoder"] in ("greedy", "beam") and one["beam"] == view["beam"]]
    return speed_up(view.record, rivals[-1].record) if rivals else None


@computed
def memory_told(view: View) -> str | None:
    """MiB at the highest, and in brackets what the pass itself took."""
    memory = view.record.memory
    for held, peak in ((memory.device_held, memory.device_peak), (memory.host_held, memory.host_peak)):
        if peak is not None:
            return f"{peak / 2**20:,.0f} (+{max(0, peak - (held or 0)) / 2**20:,.0f})"
    return None


@computed
def prepared_bytes(view: View) -> int | None:
    """Device memory that captured graphs and their tables hold."""
    graphs = view["preparation.graph_bytes"]
    return None if graphs is None else graphs + (view["preparation.table_bytes"] or 0)


# Bins of source lengths, contrastive pairs, exactness.
FIELDS |= {
    "bin_score": lambda view: view["bin"].scores[0] if view["bin"].scores else None,
    "bin_middle": lambda view: (view["bin"].shortest + view["bin"].longest) / 2,
    "bin_sizes": lambda view: " or ".join(map(str, sorted({one["bin"].sentences for one in view.scope.found}))),
    "same_bins": lambda view: _bins(view) == _bins(view.scope.found[0]),
    "accuracy": lambda view: accuracy(view["cells"]),
    "right_by_distance": lambda view: {one.name: one.percent for one in by_distance(view["cells"])},
    "right_at_distance": lambda view: view["right_by_distance"].get(view["distance"]),
    "margins": lambda view: [one.margin for one in view.record.width_one.mismatches],
    "median_margin": lambda view: statistics.median(view["margins"]) if view["margins"] else None,
    "largest_margin": lambda view: max(view["margins"], default=None),
    "probed_slots": lambda view: view["record.place"] and view.record.place.rows * view.record.place.width,
}


def _bins(view: View) -> tuple[Any, ...]:
    bins = view.record.by_length
    return [score.signature for score in bins[0].scores[:1]], [(one.shortest, one.longest) for one in bins]


# Profiles: of a pass, and of a stage of it; the stage is none for what belongs to no stage.
FIELDS |= {
    "plain_ms": lambda view: sum(view.record.plain_us) / view.record.sentences / 1000,
    "watched_ms": lambda view: view.record.watched_us / view.record.sentences / 1000,
    "rest_percent": lambda view: 100 * view.record.rest_us / max(1, view.record.watched_us),
    "times_floor": lambda view: over(view["plain_ms"], view["floor_ms"]),
    "stage_us": lambda view: view.record.rest_us if view["stage"] is None else view["stage.microseconds"],
    "stage_calls": lambda view: over(view["stage.calls"], view.record.sentences),
    "stage_ms": lambda view: view["stage_us"] / view.record.sentences / 1000,
    "stage_percent": lambda view: 100 * view["stage_us"] / max(1, view.record.watched_us),
    "stage_megabytes": lambda view: over(view["stage.weights"] or None, 1e6),
    "stage_recorded": lambda view: "recorded" in view["stage_in_words"],
    "call_ms": lambda view: view["stage"] and view["stage"].microseconds / max(1, view["stage"].calls) / 1000,
    "call_floor_ms": lambda view: view["stage"] and over(view.record.floor_us(view["stage"]), 1000),
    "call_times_floor": lambda view: over(view["call_ms"], view["call_floor_ms"]),
}


@computed
def floor_ms(view: View) -> float | None:
    """Of a sentence: every stage's floor, as often as it is called; none where that of a stage is unknown."""
    whole = [stage for stage in view.record.stages if not stage.within]
    if not view.record.bandwidth or any(stage.weights is None for stage in whole):
        return None
    total = sum(stage.calls * stage.weights for stage in whole)
    return 1e3 * total / view.record.bandwidth / view.record.sentences if total else None
