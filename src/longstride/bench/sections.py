"""A piece of the results page: a table, and the charts that belong to it."""

from __future__ import annotations

from dataclasses import dataclass

from longstride.bench.charts import Chart


@dataclass(frozen=True)
class Section:
    """A table with the name that markers use and the heading that people read."""

    name: str
    title: str
    text: str
    charts: tuple[Chart, ...] = ()
