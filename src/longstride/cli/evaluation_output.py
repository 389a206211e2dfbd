"""Evaluations told: JSON for programs, tables for people."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from longstride.cli.console import out
from longstride.cli.evaluation import Evaluation, Rival
from longstride.tasks.score import Score


def show(model: str, results: Sequence[Evaluation], rival: Rival | None, several: bool, as_json: bool) -> None:
    """One object (a list for several) where no person looks on, tables otherwise."""
    if as_json or not out.is_terminal:
        found = [_json(model, result, rival) for result in results]
        sys.stdout.write(json.dumps(found if several else found[0], ensure_ascii=False, indent=2) + "\n")
    elif several:
        _overview(model, results, rival)
    else:
        _details(model, results[0], rival)


def _json(model: str, result: Evaluation, rival: Rival | None) -> dict[str, Any]:
    decoding, setting = result.decoding, result.setting
    found: dict[str, Any] = {
        "model": model,
        "name": setting.name,
        "decoder": setting.decoder.signature,
        "sentences": len(decoding.texts),
        "scores": [
            {**asdict(score), "value": score.value if math.isfinite(score.value) else None} for score in result.scores
        ],
        "seconds": round(decoding.seconds, 3),
        "sentences_per_second": round(len(decoding.texts) / max(decoding.seconds, 1e-9), 2),
    }
    if decoding.counts is not None:
        found["iterations"] = decoding.counts.iterations
        found["tokens_per_iteration"] = decoding.counts.tokens_with_eos / max(1, decoding.counts.iterations)
        found["mean_block"] = result.mean_block
    if result.equality is not None:
        found["differ_from_greedy"] = result.equality.differing
    if rival is not None:
        found["against"] = {"system": rival.name, "comparisons": [asdict(one) for one in result.comparisons]}
    if result.by_length:
        found["by_length"] = [asdict(one) for one in result.by_length]
    if result.information is not None:
        found["mutual_information"] = {**asdict(result.information), "log10": result.information.log10}
    return found


def _details(model: str, result: Evaluation, rival: Rival | None) -> None:
    out.print(f"{model}, {result.setting.decoder.signature}", markup=False)
    table = Table(box=None, padding=(0, 2))
    for heading in ("score", "value", "signature"):
        table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
    for score in result.scores:
        table.add_row(score.name, _number(score), score.signature)
    out.print(table)
    decoding = result.decoding
    speed = len(decoding.texts) / max(decoding.seconds, 1e-9)
    line = f"{len(decoding.texts):,} sentences in {decoding.seconds:.1f} s, {speed:,.1f} a second"
    if decoding.counts is not None and decoding.counts.iterations:
        line += f"; {decoding.counts.tokens_with_eos / decoding.counts.iterations:.2f} tokens per iteration"
    out.print(line, markup=False)
    _compared(result, rival)
    _by_length(result)


def _overview(model: str, results: Sequence[Evaluation], rival: Rival | None) -> None:
    out.print(f"{model}, {len(results[0].decoding.texts):,} sentences", markup=False)
    table = Table(box=None, padding=(0, 2))
    table.add_column("decoder")
    names = [score.name for score in results[0].scores]
    for heading in (*names, "tokens/iteration", "mean block", "differ from greedy"):
        table.add_column(heading, justify="right")
    for result in results:
        counts, same = result.decoding.counts, result.equality
        table.add_row(
            result.setting.name,
            *(_number(score) for score in result.scores),
            f"{counts.tokens_with_eos / counts.iterations:.2f}" if counts and counts.iterations else "",
            f"{result.mean_block:.2f}" if result.mean_block is not None else "",
            f"{same.differing:,}" if same else "",
        )
    out.print(table)
    for score in results[0].scores:
        out.print(f"{score.name}: {score.signature}", markup=False)
    for result in results:
        _compared(result, rival, f"{result.setting.name}: ")
    for result in results:
        _by_length(result, f"{result.setting.name}, ")


def _compared(result: Evaluation, rival: Rival | None, name: str = "") -> None:
    for one in result.comparisons if rival is not None else ():
        assert rival is not None
        out.print(
            f"{name}{one.metric} {one.difference:+.2f} over {rival.name} ({one.baseline:.2f}), 95 % interval "
            f"{one.low:+.2f} to {one.high:+.2f}, p = {one.p_value:.3f}",
            markup=False,
        )


def _by_length(result: Evaluation, name: str = "") -> None:
    if not result.by_length:
        return
    table = Table(box=None, padding=(0, 2), title=f"{name}by source length", title_justify="left")
    for heading in ("tokens", "sentences", *(score.name for score in result.by_length[0].scores)):
        table.add_column(heading, justify="right")
    for one in result.by_length:
        table.add_row(f"{one.shortest}-{one.longest}", f"{one.sentences:,}", *(_number(score) for score in one.scores))
    out.print(table)


def _number(score: Score) -> str:
    """Two places, three for what is small: mutual information is."""
    return f"{score.value:.3f}" if abs(score.value) < 1 else f"{score.value:.2f}"
