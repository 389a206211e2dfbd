"""Markdown tables from records. The same records always give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from longstride.bench.cells import (
    NOTHING,
    Column,
    difference_text,
    equality_column,
    markdown,
    origin_note,
    over,
    paragraph,
    score_names,
    score_text,
    signatures_note,
    with_notes,
)
from longstride.bench.names import names_model, shortened
from longstride.bench.races import Race, latest, speed_up
from longstride.bench.records import Counts, Distillation, Latency, MemoryUse, Preparation, Quality, Training
from longstride.bench.statistics import Ratio, per_second, summarise

SAMPLED = " †"
CROWDED = " ‡"
INTERVALS = "In brackets: 95 % intervals over resampled sentences."

ACCEPTANCE_COLUMNS = 10


def latency_table(race: Race) -> str:
    """Quality beside speed: latency (or, for batches, throughput) and speed-ups over each baseline of the race."""
    race = shortened(race)
    rows = race.records
    columns = [*_head(rows), *_leading_score(rows)]
    if race.batch_size == 1:
        summaries = [summarise(record.latencies_us) for record in rows]
        columns += [
            Column("ms, mean", [_ms(summary.mean) for summary in summaries]),
            Column("p50", [_ms(summary.p50) for summary in summaries]),
            Column("p90", [_ms(summary.p90) for summary in summaries]),
            Column("p99", [_ms(summary.p99) for summary in summaries]),
        ]
    else:
        columns += [
            Column("tokens/s", _tokens_per_second(rows)),
            Column("sentences/s", [f"{per_second(len(one.output_lengths), one.latencies_us):,.1f}" for one in rows]),
        ]
    for baseline in race.baselines:
        cells = [_ratio(speed_up(record, baseline)) for record in rows]
        columns.append(Column(f"× {baseline.candidate}", cells))
    columns.append(Column("paper", [record.paper for record in rows], numeric=False))
    return markdown(columns) + "\n" + _race_notes(race)


def work_table(race: Race) -> str:
    """How the candidates of a race got there: iterations, calls, agreement, memory and the other scores."""
    race = shortened(race)
    rows = race.records
    columns = [
        _names(rows),
        *_other_scores(rows),
        Column("tokens/s", _tokens_per_second(rows)),
        *_count_columns([(record.counts, len(record.source_lengths)) for record in rows]),
        equality_column([record.equality for record in rows]),
        Column("memory, MiB", [_memory(record.memory) for record in rows]),
        *_preparation_columns([record.preparation for record in rows]),
    ]
    notes = [
        "Iterations and model calls per sentence; tokens without EOS unless said.",
        "Memory: the peak in one pass with all candidates loaded, in brackets what the pass itself took.",
        _preparation_note(rows),
        signatures_note(rows, leading=False),
    ]
    return with_notes(columns, notes)


def summary_table(race: Race) -> str:
    """The gist in few columns, for a first page."""
    race = shortened(race)
    rows = race.records
    columns = [_names(rows), *_leading_score(rows)[:1]]
    if race.batch_size == 1:
        columns.append(Column("ms per sentence", [_ms(summarise(record.latencies_us).mean) for record in rows]))
    else:
        columns.append(Column("tokens/s", _tokens_per_second(rows)))
    for baseline in race.baselines:
        ratios = [speed_up(record, baseline) for record in rows]
        cells = [f"{ratio.value:.2f}×" if ratio else NOTHING for ratio in ratios]
        columns.append(Column(f"over {baseline.candidate}", cells))
    columns += _count_columns([(record.counts, len(record.source_lengths)) for record in rows])[1:2]
    return markdown(columns) + "\n" + _race_notes(race, brackets=False)


def acceptance_table(race: Race) -> str | None:
    """Chance that a drafted token stands given that those before it did; none where nothing was drafted."""
    drafting = [one for one in shortened(race).records if one.counts is not None and one.counts.drafted]
    if not drafting:
        return None
    reached = [one.counts.reached_at for one in drafting if one.counts]
    accepted = [one.counts.accepted_at for one in drafting if one.counts]
    columns = [
        Column("decoder", [record.candidate for record in drafting], numeric=False),
        Column("drafted", [f"{one.counts.drafted:,}" for one in drafting if one.counts]),
        Column("accepted", [f"{one.counts.accepted / one.counts.drafted:.1%}" for one in drafting if one.counts]),
    ]
    for place in range(min(ACCEPTANCE_COLUMNS, max(len(numbers) for numbers in reached))):
        cells = [
            f"{(right[place] if place < len(right) else 0) / tried[place]:.2f}" if place < len(tried) else NOTHING
            for tried, right in zip(reached, accepted, strict=True)
        ]
        columns.append(Column(str(place + 1), cells))
    return markdown(columns)


def quality_table(records: Sequence[Quality]) -> str:
    """Scores and counts of decoders on one test set, no clock involved."""
    columns = [
        *_head(records),
        *_leading_score(records),
        *_other_scores(records),
        *_count_columns([(one.counts, len(one.sentences or ()) or one.workload.size) for one in records]),
        _equality(records),
        Column("paper", [record.paper for record in records], numeric=False),
    ]
    sizes = sorted({record.workload.size for record in records})
    notes = [f"{records[0].workload.name}: {' or '.join(f'{size:,}' for size in sizes)} sentences."]
    notes += _sample_notes(
        [(one.candidate, None if one.sentences is None else len(one.sentences), 0) for one in records]
    )
    notes += [INTERVALS] if any(record.against for record in records) else []
    notes += [signatures_note(records), signatures_note(records, leading=False)]
    notes += [origin_note([record.origin for record in records])]
    return with_notes(columns, notes)


def training_table(records: Sequence[Training]) -> str:
    """One row per training run, the latest of each name."""
    rows = latest(records, "name")
    names = list(dict.fromkeys(score.name for record in rows for score in record.scores))
    columns = [
        Column("run", [record.name for record in rows], numeric=False),
        Column("recipe", [f"`{record.recipe}`" for record in rows], numeric=False),
        Column("data", [record.data or NOTHING for record in rows], numeric=False),
        Column("parameters, M", [f"{record.parameters / 1e6:.1f}" for record in rows]),
        Column("steps", [f"{record.steps:,}" for record in rows]),
        Column("epochs", [NOTHING if record.epochs is None else f"{record.epochs:.1f}" for record in rows]),
        Column("minutes", [f"{record.minutes:.1f}{_crowd(record)}" for record in rows]),
        Column("target tokens/s", [f"{record.tokens_per_second:,.0f}{_crowd(record)}" for record in rows]),
        *(Column(f"{name}, valid", [score_text(record.scores, name) for record in rows]) for name in names),
        Column("device", [record.origin.machine.device for record in rows], numeric=False),
        Column("paper", [record.paper for record in rows], numeric=False),
    ]
    notes = [_crowd_note(rows), signatures_note(rows), signatures_note(rows, leading=False)]
    return with_notes(columns, [*notes, origin_note([record.origin for record in rows])])


def distillation_table(records: Sequence[Distillation]) -> str:
    """One row per distilled corpus, the latest of each name."""
    rows = latest(records, "name")
    columns = [
        Column("corpus", [record.name for record in rows], numeric=False),
        Column("teacher", [record.teacher for record in rows], numeric=False),
        Column("decoder", [f"`{record.decoder}`" for record in rows], numeric=False),
        Column("sentences", [f"{record.sentences:,}" for record in rows]),
        Column("dropped", [f"{record.dropped:,}" for record in rows]),
        Column("decoded by this run", ["" if one.decoded is None else f"{one.decoded:,}" for one in rows]),
        Column("minutes", [f"{record.minutes:.1f}{_crowd(record)}" for record in rows]),
        Column("sentences/s", [f"{record.sentences_per_second:,.0f}{_crowd(record)}" for record in rows]),
        Column("device", [record.origin.machine.device for record in rows], numeric=False),
        Column("manifest", [f"`{record.manifest_hash[:12]}`" for record in rows], numeric=False),
    ]
    return with_notes(columns, [_crowd_note(rows), origin_note([record.origin for record in rows])])


def _crowd(record: Training | Distillation) -> str:
    """A mark where other runs shared the device, so that its times are not those of the run alone."""
    return CROWDED if record.notes.get("gpu") else ""


def _crowd_note(rows: Sequence[Training] | Sequence[Distillation]) -> str:
    return f"{CROWDED.strip()} beside other runs on the same GPU: alone it is faster." if any(map(_crowd, rows)) else ""


def _equality(records: Sequence[Quality]) -> Column:
    """Outputs that are not the reference's; says nothing where each was compared with itself alone."""
    told = [record.equality for record in records]
    alone = all(one is None or one.reference == record.candidate for one, record in zip(told, records, strict=True))
    return equality_column([None] * len(records) if alone else told)


def _names(rows: Sequence[Latency] | Sequence[Quality]) -> Column:
    marked = [record.candidate + (SAMPLED if record.sentences is not None else "") for record in rows]
    return Column("decoder", marked, numeric=False)


def _head(rows: Sequence[Latency] | Sequence[Quality]) -> list[Column]:
    """Who it is; model, precision and runtime only where the rows differ in them and names do not tell."""
    columns = [_names(rows)]
    named = all(isinstance(record, Latency) and names_model(record) for record in rows)
    for heading, cells in (
        ("model", [] if named else [record.model.name for record in rows]),
        ("precision", [record.precision for record in rows]),
        ("runtime", [record.runtime for record in rows]),
    ):
        if len(set(cells)) > 1:
            columns.append(Column(heading, cells, numeric=False))
    return columns


def _leading_score(rows: Sequence[Latency] | Sequence[Quality]) -> list[Column]:
    """The first score, and its difference from the first baseline."""
    columns = []
    for name in score_names(rows)[:1]:
        columns.append(Column(name, [score_text(record.scores, name) for record in rows]))
        # Where the baseline was assessed elsewhere, only the comparisons name it.
        named = [record.candidate for record in rows if record.role == "baseline"]
        named += [one.baseline for record in rows for one in record.against]
        for baseline in named[:1]:
            columns.append(
                Column(f"{name} − {baseline}", [difference_text(record.against, baseline) for record in rows])
            )
    return columns


def _other_scores(rows: Sequence[Latency] | Sequence[Quality]) -> list[Column]:
    return [
        Column("repetition, %" if name == "repetition" else name, [score_text(record.scores, name) for record in rows])
        for name in score_names(rows)[1:]
    ]


def _tokens_per_second(rows: Sequence[Latency]) -> list[str]:
    return [f"{per_second(sum(record.output_lengths), record.latencies_us):,.0f}" for record in rows]


def _count_columns(rows: Sequence[tuple[Counts | None, int]]) -> list[Column]:
    """Per row the counts and how many sentences they are over."""

    def cells(text: Iterable[str | None]) -> list[str]:
        return [one or NOTHING for one in text]

    return [
        Column("iterations", cells(f"{one.iterations / size:.2f}" if one and size else None for one, size in rows)),
        Column("tokens/iteration", cells(over(one.tokens, one.iterations) if one else None for one, _ in rows)),
        Column("with EOS", cells(over(one.tokens_with_eos, one.iterations) if one else None for one, _ in rows)),
        Column("mean block", cells(_mean_block(one) for one, _ in rows)),
        Column("model calls", cells(f"{one.calls / size:.2f}" if one and size else None for one, size in rows)),
    ]


def _preparation_columns(rows: Sequence[Preparation | None]) -> list[Column]:
    """What had to be waited for, and what stays of it."""

    def cells(told: Callable[[Preparation], str | None]) -> list[str]:
        return [(one and told(one)) or NOTHING for one in rows]

    def held(one: Preparation) -> str | None:
        return None if one.graph_bytes is None else f"{(one.graph_bytes + (one.table_bytes or 0)) / 2**20:,.0f}"

    return [
        Column("warm-up, s", cells(lambda one: f"{one.seconds:.1f}")),
        Column("capturing, s", cells(lambda one: _given(one.capture_seconds, ".1f"))),
        Column("graphs", cells(lambda one: _given(one.graphs, ",d"))),
        Column("graphs and tables, MiB", cells(held)),
    ]


def _preparation_note(rows: Sequence[Latency]) -> str:
    if not any(one.preparation for one in rows):
        return ""
    told = f"Warm-up: {max(one.warmup for one in rows):,} sentences before the clock ran."
    if any(one.preparation and one.preparation.graphs is not None for one in rows):
        told += " Capturing, graphs and what they hold: what it added, since candidates of one model share."
    return told


def _given(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)


def _mean_block(counts: Counts | None) -> str | None:
    """Tokens per iteration that had a draft to verify; nothing where nothing was drafted."""
    if counts is None or not counts.drafted or counts.mean_block is None:
        return None
    return f"{counts.mean_block:.2f}"


def _race_notes(race: Race, brackets: bool = True) -> str:
    rows = race.records
    notes = [
        f"{race.workload.name}: {race.workload.size:,} sentences, "
        + ("one at a time, in order" if race.batch_size == 1 else f"{race.batch_size} at a time, sorted by length")
        + f"; {_passes(max(len(record.latencies_us) for record in rows))}, candidates taking turns; "
        "from ids on the host to ids on the host."
    ]
    passes = max(len(record.latencies_us) for record in rows)
    notes += _sample_notes(
        [(one.candidate, None if one.sentences is None else len(one.sentences), len(one.latencies_us)) for one in rows]
    )
    notes += [
        f"{record.candidate}: {_passes(len(record.latencies_us))}."
        for record in rows
        if record.sentences is None and len(record.latencies_us) != passes
    ]
    notes += [f"{one.candidate}: {one.unstable} outputs differed between passes." for one in rows if one.unstable]
    notes += [f"The models' names begin with `{race.unsaid}`, left out here."] if race.unsaid else []
    for heading, values in (("precision", {one.precision for one in rows}), ("runtime", {one.runtime for one in rows})):
        if len(values) == 1:
            notes.append(f"{heading.capitalize()}: {values.pop()}.")
    notes += [INTERVALS] if brackets and race.baselines else []
    notes += [signatures_note(rows), origin_note([race.origin])]
    return paragraph(notes)


def _passes(count: int) -> str:
    return f"{count} {'pass' if count == 1 else 'passes'}"


def _sample_notes(rows: Sequence[tuple[str, int | None, int]]) -> list[str]:
    """From names, sizes of samples (None: everything) and passes, a note for all that were measured alike."""
    alike: dict[tuple[int, int], list[str]] = {}
    for name, sentences, passes in rows:
        if sentences is not None:
            alike.setdefault((sentences, passes), []).append(name)
    notes = []
    for (sentences, passes), names in alike.items():
        who = "all" if 1 < len(names) == len(rows) else ", ".join(names)
        timed = f", {_passes(passes)}" if passes else ""
        them = "them" if len(names) > 1 else "it"
        notes.append(f"† {who}: on a fixed sample of {sentences:,} sentences{timed}; ratios to {them} are over those.")
    return notes


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1000:.2f}"


def _ratio(ratio: Ratio | None) -> str:
    return NOTHING if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _memory(memory: MemoryUse) -> str:
    for held, peak in ((memory.device_held, memory.device_peak), (memory.host_held, memory.host_peak)):
        if peak is not None:
            return f"{peak / 2**20:,.0f} (+{max(0, peak - (held or 0)) / 2**20:,.0f})"
    return NOTHING
