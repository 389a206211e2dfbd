"""One case: a command line that is mostly valid, with a fault or two, and the files that it names.

GraphSpec and making go hand in hand, in the folder of the case, which is the working directory; every path is relative.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz import odd_text, values
from tests.fuzz.arguments import Arguments
from tests.fuzz.grammar import Command, Parameter
from tests.fuzz.material import Material

WEIGHTS = {
    "translate": 5,
    "evaluate": 2,
    "bench": 2,
    "train": 2,
    "demo": 0.5,
    "export": 0.7,
    "report": 0.7,
    "profile": 0.3,
    "doctor": 0.3,
}
"""How often a command is drawn; one is usual, and less for those that are slow."""

DEEP = {"set": 6, "option": 4, "recipe": 4, "records": 3, "model": 3, "output": 3, "decoders": 2}
"""Options behind which there is more that can be wrong than behind others, which count one."""

THRIFTY = {"bench": ("passes", "decoders"), "profile": ("decoders",), "demo": (), "doctor": ("runtime",)}
"""Commands that do everything several times, and the options by which they do less."""

ENVIRONMENT = (
    *(("COLUMNS", "0"), ("COLUMNS", "-5"), ("COLUMNS", "x"), ("COLUMNS", "1"), ("TERM", "dumb"), ("TERM", "nothing")),
    *(
        ("FORCE_COLOR", "1"),
        ("NO_COLOR", "1"),
        ("LC_ALL", "C"),
        ("LANG", "xx_YY"),
        ("TZ", "nowhere"),
        ("HOME", "missing"),
    ),
    *(("TMPDIR", "missing"), ("XDG_CACHE_HOME", "in/1.txt"), ("CUDA_VISIBLE_DEVICES", "x"), ("OMP_NUM_THREADS", "-1")),
    *(("PATH", ""), ("CC", "nothing"), ("LONGSTRIDE_COMMIT", "\udcff")),
)


@dataclass
class Case:
    """What is to be carried out."""

    argv: list[str] = field(default_factory=list)
    stdin: bytes | None = b""
    """None: closed"""
    stdout: str = "file"
    """file, terminal, full (a device), gone (a pipe nobody reads), closed"""
    disk: int | None = None
    """bytes that a file may have: a disk that is full"""
    environment: dict[str, str] = field(default_factory=dict)
    no_number: list[str] = field(default_factory=list)
    """options that expect a number and were given nan or inf: never right"""
    interrupt: float | None = None
    """seconds after which Ctrl-C is pressed"""
    faults: list[str] = field(default_factory=list)


class Drawer:
    """Draws one case."""

    def __init__(self, rng: Random, material: Material, command: Command) -> None:
        self.rng = rng
        self.command = command
        self.case = Case()
        lines = rng.choice((1, 2) if command.name in THRIFTY else (1, 2, 3, 3, 5))
        self.arguments = Arguments(rng, material, command, lines)

    def draw(self) -> Case:
        """The whole case."""
        rng, case = self.rng, self.case
        for name in ("in", "out"):
            Path(name).mkdir()
        faults = rng.choice((0, 1, 1, 1, 1, 2, 2))
        chosen = [one for one in self.command.parameters if self._wanted(one)]
        spoilt: list[str] = []
        for _ in range(faults):
            spoilt.append(self._fault(chosen))
        if any(one.name == "set" for one in chosen):  # an option of the decoder that is named
            chosen += [one for one in self.command.parameters if one.name == "decoder" and one not in chosen]
        for one in chosen:
            for _ in range(rng.choice((1, 1, 1, 2)) if one.multiple else 1):
                case.argv += self._spelt(one, one.name in spoilt)
        if case.stdin == b"":
            case.stdin = odd_text.usual(rng, self.arguments.lines)
        if "command line" in spoilt:
            self._spoil_line()
        case.argv = [*self.command.words, *case.argv]
        case.faults = spoilt
        case.no_number = self.arguments.no_number
        return case

    def _wanted(self, one: Parameter) -> bool:
        """Whether the option is given at all: if it must be, or if that keeps the work small, or by chance."""
        if one.required or one.name in ("model", "records"):
            # The bundled model, which is the default, makes some commands slow.
            return one.name != "model" or self.command.name not in ("translate", "decoders") or self.rng.random() < 0.97
        if one.name in ("source", "reference", "target") or one.name in THRIFTY.get(self.command.name, ()):
            return True
        if one.name == "output":
            return self.rng.random() < 0.6
        if self.command.words[0] == "export" and one.name == "check":
            return self.rng.random() < 0.6
        return self.rng.random() < 2.0 / (4 + len(self.command.parameters))

    def _fault(self, chosen: list[Parameter]) -> str:
        """What is wrong this time: an option's value, by name, or something around it."""
        rng, case = self.rng, self.case
        how = rng.random()
        if how < 0.72:
            some = chosen if chosen and rng.random() < 0.6 else self.command.parameters
            (one,) = rng.choices(some, [DEEP.get(one.name, 1) for one in some])
            if one not in chosen:
                chosen.append(one)
            return one.name
        if how < 0.80:
            case.stdin = rng.choice((None, odd_text.odd(rng), odd_text.odd(rng), odd_text.odd(rng)))
            return "stdin"
        if how < 0.86:
            case.stdout = rng.choice(("full", "gone", "closed", "terminal", "terminal"))
            return "stdout"
        if how < 0.88:
            case.disk = rng.choice((4096, 8192, 40_000))
            return "disk"
        if how < 0.90:
            case.environment = dict([rng.choice(ENVIRONMENT)])
            return "environment"
        if how < 0.92:
            case.interrupt = rng.choice((0.0, 0.01, 0.05, 0.2, 0.5))
            return "interrupt"
        if how < 0.95 and (required := [one for one in chosen if one.required and one.name != "model"]):
            chosen.remove(rng.choice(required))
            return "left out"
        return "command line"

    def _spoil_line(self) -> None:
        """Words too many or too few."""
        rng, argv = self.rng, self.case.argv
        place = rng.randint(0, len(argv))
        how = rng.randrange(5)
        if how == 0:
            argv.insert(place, values.odd(rng, str))
        elif how == 1:
            argv.insert(place, rng.choice(("--nothing", "-z", "--set", "--help", "--model=", "--version", "--", "-oi")))
        elif how == 2 and argv:
            del argv[rng.randrange(len(argv))]
        elif how == 3 and argv:
            argv.insert(place, rng.choice(argv))
        elif len(argv) > 1:
            one, other = rng.randrange(len(argv)), rng.randrange(len(argv))
            argv[one], argv[other] = argv[other], argv[one]

    def _spelt(self, one: Parameter, faulty: bool) -> list[str]:
        """The option and its value as words."""
        rng = self.rng
        if one.kind is bool:
            return [rng.choice((*one.flags, *one.off))]
        value = self.arguments.value(one, faulty)
        if not one.flags:
            return [value]
        flag = rng.choice(one.flags)
        return [f"{flag}={value}"] if flag.startswith("--") and rng.random() < 0.2 else [flag, value]


def draw(seed: int, number: int, material: Material, commands: list[Command]) -> Case:
    """The case of this number: always the same one, for the same commands."""
    rng = Random(f"{seed}:{number}")
    (command,) = rng.choices(commands, [WEIGHTS.get(one.name, 1) for one in commands])
    return Drawer(rng, material, command).draw()
