"""longstride profile: where the time of each decoder goes on this device, and how far that is from the floor."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli import options as shared
from longstride.cli.console import Stages, out, say, warn
from longstride.cli.provenance import data_name, origin_of
from longstride.cli.streams import input_file, record_file
from longstride.cli.test_sets import in_ids
from longstride.contract import InputError, OptionError
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.bench.candidate import Candidate
    from longstride.bench.profile import Device as Facts
    from longstride.bench.record_parts import Origin
    from longstride.bench.records import Profile
    from longstride.bench.workload import Workload
    from longstride.cli.lineup import Entry
    from longstride.contract import Runner
    from longstride.translator import Translator

SEEN = 3
"""batches whose decoding is looked into for the weights that stages read"""


@dataclass(frozen=True)
class Member:
    """One decoder of one model."""

    model: str
    """as the command line names it"""
    entry: Entry
    name: str


def profile(
    source: shared.Source,
    model: Annotated[
        list[str] | None,
        typer.Option("-m", "--model", help=f"Model folder; may be given several times (default: {BUNDLED})."),
    ] = None,
    decoders: Annotated[
        str | None,
        typer.Option(
            help="Which decoders, as for bench: greedy,draft-verify:accept=top:3,gap:1.0 (default: all that each model "
            "has). Of several models, all that have a decoder take part in it, unless FOLDER/greedy names one."
        ),
    ] = None,
    set: shared.Set = None,
    drafter: shared.DrafterFolder = None,
    sentences: Annotated[int, typer.Option(min=1, max=10**9, help="Decode a fixed sample of so many sentences.")] = 50,
    batch: Annotated[int, typer.Option(min=1, max=10**6, help="Sentences decoded together.")] = 1,
    inside: Annotated[
        bool,
        typer.Option(help="Time the programs within captured steps too (CUDA graphs; takes them a little longer)."),
    ] = False,
    runtime: shared.Runtime = "auto",
    precision: shared.Precision = "auto",
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    record: shared.Record = None,
    experiment: shared.Experiment = None,
    workload: shared.Workload = None,
) -> None:
    """Say where the time of each decoder goes: a stage's share, calls, time and distance to its floor.

    One decoder after the other, each alone on the device. Stages are timed with the device synchronised around them,
    which makes the whole longer than it is: the time without that is told beside it. To compare decoders, use bench.
    """
    from longstride.bench.profile import device_facts
    from longstride.bench.record_files import append_records
    from longstride.bench.sources import profile_tables
    from longstride.cli.lineup import read_entries
    from longstride.runtime.choosing import fastest_runtime
    from longstride.text.corpus import read_lines

    models = model or [BUNDLED]
    if drafter is not None and len(models) > 1:
        raise OptionError(f"--drafter expects one --model that it drafts for, found {len(models)}.")
    if inside and (by := fastest_runtime(device, precision) if runtime == "auto" else runtime) != "cuda-graph":
        raise OptionError(f"--inside expects the runtime cuda-graph, found {by}.")
    entries = read_entries(decoders, models=True) if decoders is not None else []
    record = record_file(record)
    source = input_file(source)
    lines = [line for line in read_lines(source) if line.strip()]
    if not lines:
        raise InputError(f"{source}: expected at least one sentence to translate, found none.")

    def opened(folder: str, runtime: str = runtime, precision: str = precision) -> Translator:
        return shared.open_model(folder, runtime, precision, device, drafter, threads)

    common = shared.settings(set)
    translators = [opened(one) for one in models]
    shared.say_report(*translators, runtime=runtime)
    members = _members(models, translators, entries, common)
    origin = origin_of(experiment, translators[0])
    where = translators[0].runner.device
    del translators  # what they loaded must not count among the memory of others
    _forget()
    work = _Work(
        opened, lines, str(source), workload or data_name(source), sentences, batch, inside, common, drafter, origin
    )
    found: list[Profile] = []
    try:
        with Stages() as shown:
            facts = device_facts(where)
            for order, member in enumerate(members):
                one = work.profile(member, facts, order, shown)
                found.append(one)
                if record is not None:
                    append_records(record, [one])
                _forget()
    finally:  # what was found is told, though it could not be written
        for table in profile_tables(found) if found else ():
            out.print(table, markup=False)
    if record is not None:
        say(f"{len(found)} records appended to {record}.")


def _members(
    models: Sequence[str], translators: Sequence[Translator], entries: Sequence[Entry], common: dict[str, Any]
) -> list[Member]:
    """Who is profiled; a model or decoder that is not there, or an option that a decoder lacks, is refused."""
    from longstride.cli.lineup import Entry, check_models, model_names
    from longstride.registry import DECODERS, find, split_options

    check_models(entries, translators)
    found: list[Member] = []
    taken: list[Entry] = []
    for model, translator in zip(models, translators, strict=True):
        offered = [*translator.decoders, *translator.possible]
        mine = [one for one in entries if one.model in ("", *model_names(translator)) and one.decoder in offered]
        taken += mine
        for entry in mine if entries else [Entry(name, {}) for name in translator.decoders]:
            kind = find(DECODERS, entry.decoder, "decoder")
            split_options(kind.options, {**common, **entry.options}, entry.decoder)
            name = f"{translator.folder.name} {entry.name}" if len(models) > 1 else entry.name
            found.append(Member(model, entry, name))
    for entry in entries:
        if entry not in taken:
            names = dict.fromkeys(name for one in translators for name in (*one.decoders, *one.possible))
            raise OptionError(f"--decoders expects decoders that a model has ({', '.join(names)}), found {entry.name}.")
    return found


@dataclass(frozen=True)
class _Work:
    """What all members have in common."""

    opened: Callable[..., Translator]
    """(model, runtime, precision) -> a model of one's own"""
    lines: Sequence[str]
    file: str
    workload: str
    sentences: int
    batch: int
    inside: bool
    common: dict[str, Any]
    drafter: str | None
    origin: Origin

    def profile(self, member: Member, facts: Facts, order: int, shown: Stages) -> Profile:
        """One member, alone."""
        from longstride.bench.profile import profile as profile_candidate
        from longstride.bench.profile import with_weights
        from longstride.bench.profile_watch import CudaMarks, Stopwatch, Watched, synchronizer

        translator = self.opened(member.model)
        runner = translator.runner
        watch = Stopwatch(synchronizer(runner.device))
        marks = CudaMarks() if self.inside and runner.name == "cuda-graph" else None
        translator.runner = Watched(runner, watch, marks)
        candidate = self._candidate(translator, member)
        test_set = self._test_set(translator)
        again = marks is not None
        found = profile_candidate(candidate, watch, test_set, self.batch, self.origin, facts, order, again, shown.to)
        if said := runner.report():
            say(said)
        if differing := found.notes["differing"]:
            warn(f"{member.name}: {differing} batches came out otherwise while they were watched.")
        try:
            return with_weights(found, self._read(member, runner, test_set))
        except Exception as error:  # what was measured stands, with a floor or without
            warn(f"{member.name}: the weights that stages read are not known, and no floor is told: {error}")
            return found

    def _read(self, member: Member, like: Runner, test_set: Workload) -> dict[str, int]:
        """Bytes of weights by stage, from a few batches decoded by plain PyTorch, a last and smaller one among them."""
        from longstride.bench.profile import profiled_batches
        from longstride.bench.profile_weights import ReadingRunner

        translator = self.opened(member.model, "eager", "fp32" if like.precision == "int8" else like.precision)
        reading = ReadingRunner(translator.runner, like)
        translator.runner = reading
        candidate = self._candidate(translator, member)
        reading.know(translator.parts_of(member.entry.decoder).values())
        batches = sorted(profiled_batches(candidate, test_set, self.batch), key=lambda source: source.longest)
        for place in sorted({round(step * (len(batches) - 1) / (SEEN - 1)) for step in range(SEEN)}):
            candidate.decoder.decode(batches[place], candidate.limits)
        return reading.read

    def _candidate(self, translator: Translator, member: Member) -> Candidate:
        from longstride.cli.lineup import line_up

        entry = replace(member.entry, model="")
        samples = {"": self.sentences}
        (found,) = line_up([translator], [entry], self.common, samples, baselines=False, drafter=self.drafter)
        return replace(found, name=member.name)

    def _test_set(self, translator: Translator) -> Workload:
        sources = translator.encode(self.lines, warn=lambda said: warn(f"{self.file}, {said}"))
        nothing = [""] * len(sources)  # no output is scored
        return in_ids(translator, self.workload, sources, nothing)


def _forget() -> None:
    """Give back what nobody holds, so that the next decoder is alone."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
