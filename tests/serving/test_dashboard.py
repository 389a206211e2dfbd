"""deploy/grafana.json asks for figures that the server has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from longstride.serving.metrics import Metrics

FILE = Path(__file__).resolve().parents[2] / "deploy" / "grafana.json"
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="dashboards are in a checkout only, and this is none")


def exported() -> dict[str, set[str]]:
    """Names of series as Prometheus stores them, with their labels."""
    metrics = Metrics()
    metrics.watch_loads(lambda: [("model", "decoder", 0, 0)])
    metrics.request("/", 200, 0.1)
    named = {name: value for name, value in vars(metrics).items() if hasattr(value, "_labelnames")}
    for one in named.values():
        one.labels(*("" for _ in one._labelnames))
    return {
        sample.name: set(sample.labels)
        for family in metrics.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def queries() -> list[str]:
    board = json.loads(FILE.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    return asked + [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]


def test_every_figure_of_the_dashboard_is_exported() -> None:
    known = exported()
    named = {name for query in queries() for name in re.findall(r"longstride:\w+", query)}
    assert named <= known.keys()
    families = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in known}
    assert families == {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in named}  # and nothing is left out


def test_figures_are_grouped_by_labels_that_they_have() -> None:
    known = exported()
    for query in queries():
        for labels, name in re.findall(r"sum by \(([\w, ]+)\) \((?:rate\()?(longstride:\w+)", query):
            assert set(labels.split(", ")) <= known[name], query


def test_panels_do_not_overlap() -> None:
    panels = json.loads(FILE.read_text(encoding="utf-8"))["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
