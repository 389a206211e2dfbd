"""What tables and plots call the candidates of a race; records keep their names whole.

Candidates of several models are called by model and decoder: ``en-de-verifier greedy``. What the names of all these
models begin with, up to a hyphen, tells nothing apart and takes the room of what does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile

from longstride.bench.races import Race
from longstride.bench.records import Latency


def shared_start(names: Iterable[str]) -> str:
    """What all of these begin with, up to a hyphen and with it; nothing where that would leave nothing of a name."""
    different = sorted(set(names))
    if len(different) < 2:
        return ""
    # Of sorted names, what the first and the last share is shared by all between.
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(different[0], different[-1], strict=False))
    start = "".join(letter for letter, _ in pairs)
    start = start[: start.rfind("-") + 1]
    return "" if start in different else start


def names_model(record: Latency) -> bool:
    """Whether the candidate's name begins with its model's."""
    return record.candidate.startswith(f"{record.model.name} ")


def shortened(race: Race) -> Race:
    """The same race with names as short as they can be; the same again for one that is short already."""
    ours = [record for record in race.records if names_model(record)]
    start = shared_start(record.model.name for record in ours)
    short = {record.candidate: record.candidate.removeprefix(start) for record in ours}
    names = {record.candidate: short.get(record.candidate, record.candidate) for record in race.records}
    if not start or len(set(names.values())) < len(names):
        return race
    return Race(tuple(_renamed(record, names, start) for record in race.records), unsaid=start)


def _renamed(record: Latency, names: Mapping[str, str], start: str) -> Latency:
    equality = record.equality
    if equality is not None:
        equality = replace(equality, reference=names.get(equality.reference, equality.reference))
    return replace(
        record,
        candidate=names[record.candidate],
        model=replace(record.model, name=record.model.name.removeprefix(start)),
        equality=equality,
        against=tuple(replace(one, baseline=names.get(one.baseline, one.baseline)) for one in record.against),
    )
