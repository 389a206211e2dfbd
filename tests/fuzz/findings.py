"""Tells what was found, each finding once, with what it takes to see it again."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.checks import Finding, command_of
from tests.fuzz.child import Outcome


@dataclass
class Seen:
    """A finding, and the cases that came upon it."""

    finding: Finding
    seed: int
    outcome: Outcome
    numbers: list[int] = field(default_factory=list)
    commands: Counter[str] = field(default_factory=Counter)

    def told(self) -> str:
        """For a person."""
        first, one, outcome = self.numbers[0], self.finding, self.outcome
        more = f" and {len(self.numbers) - 1} more" if len(self.numbers) > 1 else ""
        lines = [
            f"{one.kind} at {one.place}: {one.told}",
            f"    case   {self.seed}:{first}{more} (faults: {', '.join(outcome.faults) or 'none'})",
            f"    shell  {shell(outcome)}",
        ]
        lines += [f"    | {line}" for line in one.traceback.rstrip().splitlines()[-6:]]
        return "\n".join(re.sub(r"(.)\1{60,}", _shortened, line) for line in lines)


def _shortened(run: re.Match[str]) -> str:
    return f"{run[1] * 3}...({len(run[0])} times)"


class Book:
    """All findings of a run, by kind and place."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.seen: dict[tuple[str, str], Seen] = {}

    def add(self, number: int, outcome: Outcome) -> list[Seen]:
        """Those that are new."""
        new = []
        for finding in outcome.findings:
            key = (finding.kind, finding.place)
            if key not in self.seen:
                self.seen[key] = Seen(finding, self.seed, outcome)
                new.append(self.seen[key])
            self.seen[key].numbers.append(number)
            self.seen[key].commands[command_of(outcome.argv)] += 1
        return new

    def write(self, path: Path, cases: int) -> None:
        """As a page of Markdown, the most frequent first."""
        lines = [f"# {len(self.seen)} findings in {cases} cases of seed {self.seed}", ""]
        for one in sorted(self.seen.values(), key=lambda one: -len(one.numbers)):
            lines += [f"## {one.finding.kind} at {one.finding.place} ({len(one.numbers)} cases)", ""]
            lines += ["Commands: " + ", ".join(f"{name} {count}" for name, count in one.commands.most_common()), ""]
            lines += ["```", one.told(), "```", ""]
        path.write_bytes("\n".join(lines).encode("utf-8", "backslashreplace"))


def shell(outcome: Outcome) -> str:
    """The command line as a shell takes it, in the folder of the case."""
    words = []
    for word in outcome.argv:
        told = word if len(word) < 400 else f"{word[:20]}...({len(word)} characters)"
        words.append(shlex.quote(told.encode("utf-8", "backslashreplace").decode()))
    environment = "".join(f"{name}={shlex.quote(value)} " for name, value in outcome.environment.items())
    environment += f"ulimit -f {outcome.disk // 1024}; " if outcome.disk is not None else ""
    streams = "<&-" if outcome.stdin == "closed" else "< ../stdin"
    streams += {
        "file": "",
        "terminal": " # on a terminal",
        "full": " > /dev/full",
        "gone": " | true",
        "closed": " >&-",
    }[outcome.stdout]
    streams += f" # Ctrl-C after {outcome.interrupt} s" if outcome.interrupt is not None else ""
    return f"{environment}longstride {' '.join(words)} {streams}".replace("\n", "\\n")
