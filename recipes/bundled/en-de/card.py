"""Fill the card of the family from what is measured: card.py FOLDER RECORDS [--mix FILE].

Only records of this very folder count, by the hash of its weights, or of the same folder less parts that the decoder of
a record has no use for; what was not measured is said to be so. Of several records of one setting the last is told.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from longstride.bench.record_files import read_records
from longstride.bench.records import Latency, Quality, Record
from longstride.bench.statistics import summarise
from longstride.model_folder import ModelFolder
from longstride.text.files import written_whole

TEMPLATE = Path(__file__).resolve().parent / "card.md"
CARD = "README.md"
UNMEASURED = "Not measured yet."
MICROSECONDS = 1000.0
"""in a millisecond"""


def write(path: Path, records: Path, mix: Path | None = None) -> None:
    """Write a folder's card."""
    folder = ModelFolder(path)
    mine = _own(read_records([records]) if records.exists() else [], folder)
    text = TEMPLATE.read_text(encoding="utf-8")
    filled: dict[str, str] = {
        "sizes": sizes(folder),
        "scores": scores([one for one in mine if isinstance(one, Quality)]),
        "speed": speed([one for one in mine if isinstance(one, Latency)]),
        "provenance": provenance(folder),
        **_pairs(mix or records.parent / "distilled" / "mix.json"),
    }
    for name, value in filled.items():
        text = text.replace(f"<!-- {name} -->", value)
    with written_whole(path / CARD) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sizes(folder: ModelFolder) -> str:
    """Megabytes by part."""
    parts = {name: (folder.path / part.weights).stat().st_size for name, part in folder.parts.items()}
    parts["tokenizer"] = (folder.path / folder.config.tokenizer).stat().st_size
    told = [f"{name} {size / 1e6:.1f}" for name, size in parts.items() if size >= 50_000]
    return f"{sum(parts.values()) / 1e6:.1f} MB in all: {', '.join(told)}."


def scores(records: Sequence[Quality]) -> str:
    """BLEU, chrF and what a decoder takes for it, a table per test set and machine."""
    found = []
    for kind in dict.fromkeys(map(_measured, records)):
        rows = list({one.candidate: one for one in records if _measured(one) == kind}.values())
        table = [
            ("decoder", [one.candidate for one in rows]),
            *((metric, [_score(one, metric) for one in rows]) for metric in ("BLEU", "chrF")),
            ("tokens per iteration", [_tokens(one) for one in rows]),
            ("differ from greedy's", [_differing(one) for one in rows]),
        ]
        signatures = {score.name: score.signature for one in rows for score in one.scores}
        told = "; ".join(f"{metric}: `{signatures[metric]}`" for metric in ("BLEU", "chrF") if metric in signatures)
        where = f", {machine}" if (machine := rows[0].origin.machine.cpu) else ""
        size = f"{rows[0].workload.size:,} sentences"
        found.append(f"{rows[0].workload.name}, {size}, {rows[0].precision}{where}. {told}.\n\n{_table(table)}")
    return "\n\n".join(found) or UNMEASURED


def speed(records: Sequence[Latency]) -> str:
    """Milliseconds a sentence, decoded one at a time, a table per test set and machine."""
    single = [one for one in records if one.batch_size == 1]
    found = []
    for kind in dict.fromkeys(map(_measured, single)):
        found.append(_times(list({one.candidate: one for one in single if _measured(one) == kind}.values())))
    return "\n\n".join(found) or UNMEASURED


def _measured(record: Quality | Latency) -> tuple[str, str, str, str | None]:
    """What has to be the same for figures to stand in one table; last bits, and so outputs, go by the processor."""
    return record.workload.name, record.runtime, record.precision, record.origin.machine.cpu


def _times(rows: Sequence[Latency]) -> str:
    told = {one.candidate: summarise(one.latencies_us) for one in rows}
    greedy = told.get("greedy")
    table = [
        ("decoder", list(told)),
        ("mean ms", [f"{one.mean / MICROSECONDS:.1f}" for one in told.values()]),
        ("median ms", [f"{one.p50 / MICROSECONDS:.1f}" for one in told.values()]),
        ("speed-up over greedy", [f"{greedy.mean / one.mean:.2f}" if greedy else "·" for one in told.values()]),
    ]
    first = rows[0]
    where = f"{len(first.source_lengths):,} sentences of {first.workload.name}, one at a time, {first.runtime}, "
    return f"{where}{first.precision}, {first.origin.machine.cpu or first.device}.\n\n{_table(table)}"


def provenance(folder: ModelFolder) -> str:
    """What each run was, in a line."""
    runs: Mapping[str, Any] = {
        name: run for name, run in folder.config.provenance.get("runs", {}).items() if "recipe" in run
    }
    table: list[tuple[str, list[str]]] = [("run", list(runs))]
    told: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "commit": lambda run: str(run.get("commit", ""))[:12],
        "device": lambda run: run.get("device", ""),
        "updates": lambda run: f"{run.get('updates', 0):,}",
        "target tokens": lambda run: f"{run.get('target_tokens', 0):,}",
        "minutes": lambda run: run.get("minutes", ""),
    }
    table += [(name, [str(tell(run)) for run in runs.values()]) for name, tell in told.items()]
    return _table(table)


def _own(records: Sequence[Record], folder: ModelFolder) -> list[Quality | Latency]:
    @cache
    def hashes(decoder: str) -> set[str]:
        used = {*folder.decoders[decoder].parts.values()} if decoder in folder.decoders else {*folder.parts}
        used |= {lender for name in used if (lender := folder.parts[name].reuses) is not None}
        spare = [name for name in folder.parts if name not in used]
        left = (chain(used, some) for count in range(len(spare) + 1) for some in combinations(spare, count))
        return {folder.sha256_of([*parts]) for parts in left}

    found = [one for one in records if isinstance(one, Quality | Latency)]
    return [one for one in found if one.model.hash in hashes(one.decoder.partition("|")[0])]


def _pairs(mix: Path) -> dict[str, str]:
    """How many pairs of each kind were learnt from."""
    counts: dict[str, int] = json.loads(mix.read_text(encoding="utf-8"))["pairs"] if mix.is_file() else {}
    return {
        f"pairs:{name}": f"{counts[name]:,}" if name in counts else UNMEASURED
        for name in ("distilled", "everyday", "copies")
    }


def _score(record: Quality, metric: str) -> str:
    return next((f"{score.value:.1f}" for score in record.scores if score.name == metric), "·")


def _tokens(record: Quality) -> str:
    counts = record.counts
    return f"{counts.tokens_with_eos / counts.iterations:.2f}" if counts and counts.iterations else "·"


def _differing(record: Quality) -> str:
    return f"{record.equality.differing:,}" if record.equality else "·"


def _table(columns: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A Markdown table from headings and columns, without those that are empty."""
    columns = [(heading, cells) for heading, cells in columns if any(cells)]
    lines = ["| " + " | ".join(heading for heading, _ in columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in zip(*(cells for _, cells in columns), strict=True)]
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("--mix", type=Path, help="what was mixed (default: distilled/mix.json beside the records)")
    asked = parser.parse_args()
    write(asked.folder, asked.records, asked.mix)
    print(asked.folder / CARD, file=sys.stderr)


if __name__ == "__main__":
    main()
