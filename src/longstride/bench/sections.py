"""A piece of the results page: a table, and the charts that belong to it, named by what they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from longstride.bench.charts import Chart
from longstride.bench.races import slug
from longstride.bench.records import Quality

Table = tuple[str, str, Callable[[Sequence[Quality]], str | None]]
"""Name, title and maker of a table; what has nothing to put into it is not made."""


@dataclass(frozen=True)
class Section:
    """A table with the name that markers use and the heading that people read."""

    name: str
    topic: str
    """experiment and what is shown of it"""
    where: str
    """the test set, and the machine where that matters"""
    text: str
    charts: tuple[Chart, ...] = ()

    @property
    def title(self) -> str:
        """The heading."""
        return f"{self.topic}, {self.where}"


@dataclass(frozen=True, order=True)
class Place:
    """What sections are about: an experiment on a test set."""

    experiment: str
    workload: str

    @staticmethod
    def of(group: Sequence[Quality]) -> Place:
        """Of records that share both."""
        return Place(group[0].origin.experiment, group[0].workload.name)

    @property
    def name(self) -> str:
        """For markers and files."""
        return slug(f"{self.experiment} {self.workload}")

    def section(self, name: str, title: str, text: str, *charts: Chart) -> Section:
        """A section about this."""
        return Section(f"{name}/{self.name}", f"{self.experiment}: {title}", self.workload, text, charts)


def table_sections(group: Sequence[Quality], tables: Iterable[Table]) -> list[Section]:
    """All of these tables that a group of records, of one experiment and test set, has something to say in."""
    made = [(name, title, make(group)) for name, title, make in tables]
    return [Place.of(group).section(name, title, text) for name, title, text in made if text is not None]
