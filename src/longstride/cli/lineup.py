"""Who takes part in a benchmark or an evaluation: decoders as the command line names them, made into candidates.

A decoder is written `name` or `name:option=value;option=value`; decoders are separated by commas. A comma is part of a
value where what follows it does not begin with the name of a decoder: `draft-verify:accept=top:3,gap:1.0,greedy` names
two. Where several models take part, `folder/name` is for the model of that folder (or name) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longstride.bench.candidate import Candidate, Captured
from longstride.bench.comparison import slug
from longstride.bench.machine import cuda_probe
from longstride.bench.profile_watch import synchronizer
from longstride.cli.options import whole_number
from longstride.cli.provenance import model_notes, model_tag
from longstride.contract import Decoder, Limits, OptionError, Runner
from longstride.contract.options import assignments, shown
from longstride.registry import DECODERS
from longstride.translator import Translator

BASELINES = ("greedy", "beam")
"""Of the first model, always in the line-up unless told otherwise: what every speed-up is over."""


@dataclass(frozen=True)
class Entry:
    """One decoder with options, as asked for."""

    decoder: str
    options: dict[str, Any]
    model: str = ""
    """the one model that it is for, by its name or its folder's; empty: for all"""

    @property
    def name(self) -> str:
        """``beam width=4``"""
        return " ".join([self.decoder, *(f"{name}={value}" for name, value in self.options.items())])


def read_entries(text: str, models: bool = False) -> list[Entry]:
    """The decoders that --decoders names; `models` says whether they may be for one of several."""
    pieces: list[str] = []
    for piece in text.split(","):
        begins = _split(piece.partition(":")[0].strip(), models)[1] in DECODERS
        if pieces and ":" in pieces[-1] and not begins:
            pieces[-1] += "," + piece
        else:
            pieces.append(piece)
    entries = []
    for piece in pieces:
        told, _, options = (part.strip() for part in piece.partition(":"))
        model, name = _split(told, models)
        if not name:
            raise OptionError(f"--decoders expects name or name:option=value;..., found {text!r}.")
        try:
            entries.append(Entry(name, dict(assignments([one for one in options.split(";") if one.strip()])), model))
        except OptionError:
            raise OptionError(f"--decoders expects name:option=value;option=value, found {piece!r}.") from None
    return entries


def _split(told: str, models: bool) -> tuple[str, str]:
    """``folder/decoder``, or a decoder alone."""
    model, _, name = told.rpartition("/") if models else ("", "", told)
    return model, name


@dataclass(frozen=True)
class Setting:
    """One decoder of one model with its options, ready to decode."""

    name: str
    """in records"""
    asked: str | None
    """the decoder by name; none: the model's own"""
    options: dict[str, Any]
    decoder: Decoder
    limits: Limits
    file: Path | None = None
    """where its outputs go"""


def read_settings(decoder: str | None, decoders: str | None) -> list[Entry] | None:
    """What --decoders names; none where there is one decoder, by --decoder or the model's own."""
    if decoders is None:
        return None
    if decoder is not None:
        raise OptionError(f"--decoder and --decoders expect one of them alone, found both ({decoder}, {decoders}).")
    entries = read_entries(decoders)
    files = [slug(entry.name) for entry in entries]
    twice = [entry.name for entry, file in zip(entries, files, strict=True) if files.count(file) > 1]
    if twice:
        raise OptionError(f"--decoders expects every setting once, found {twice[0]!r} several times.")
    return entries


def settings_of(
    translator: Translator,
    asked: str | None,
    entries: Sequence[Entry] | None,
    shared: dict[str, Any],
    name: str | None = None,
    output: Path | None = None,
) -> list[Setting]:
    """Every setting with its decoder, which refuses bad options; of several, each with a file in the folder."""
    if entries is None:
        decoder, limits = translator.decoder(asked, **shared)
        return [Setting(name or decoder.name, asked, shared, decoder, limits, output)]
    found = []
    for entry in entries:
        options = {**shared, **entry.options}
        decoder, limits = translator.decoder(entry.decoder, **options)
        told = f"{name}, {entry.name}" if name else entry.name
        file = output / f"{slug(entry.name)}.txt" if output is not None else None
        found.append(Setting(told, entry.decoder, options, decoder, limits, file))
    return found


def greedy_among(named: Sequence[tuple[str, Decoder]]) -> str | None:
    """The one whose output exact acceptance must give: greedy or, of a model that offers none, one head alone."""
    wanted = ("greedy|", "blockwise|k:1|")
    return next((name for begins in wanted for name, one in named if one.signature.startswith(begins)), None)


def read_samples(texts: Sequence[str]) -> dict[str, int]:
    """What --sample says: decoder -> sentences; the empty name stands for all that are not named."""
    samples: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        sentences = whole_number(number)
        if sentences is None or (equals and not name.strip()):
            raise OptionError(f"--sample expects a number of sentences, or decoder=number, found {shown(text)}.")
        samples[name.strip()] = sentences
    return samples


def line_up(
    translators: Sequence[Translator],
    entries: Sequence[Entry],
    shared: dict[str, Any],
    samples: dict[str, int],
    baselines: bool,
    names: Sequence[str] | None = None,
    drafter: str | None = None,
) -> list[Candidate]:
    """Candidates of all models, the first model's greedy and beam first; `names` are baselines instead, where given.

    `drafter` is the folder whose drafter drafts, where that is not the model's own.
    """
    several = len(translators) > 1
    found: list[Candidate] = []
    check_models(entries, translators)
    for number, translator in enumerate(translators):
        wanted = [entry for entry in entries if entry.model in ("", *model_names(translator))]
        wanted = wanted if entries else [Entry(name, {}) for name in translator.decoders]
        if number == 0 and baselines:
            present = {entry.decoder for entry in wanted}
            missing = [name for name in BASELINES if name in translator.decoders and name not in present]
            wanted = [*(Entry(name, {}) for name in missing), *wanted]
        for entry in wanted:
            name = f"{translator.folder.name} {entry.name}" if several else entry.name
            role = name in names if names is not None else number == 0 and baselines and entry.decoder in BASELINES
            sample = samples.get(entry.decoder, samples.get(""))
            found.append(_candidate(translator, entry, name, {**shared, **entry.options}, role, sample, drafter))
    unknown = [name for name in names or () if name not in [one.name for one in found]]
    if unknown:
        there = ", ".join(one.name for one in found)
        raise OptionError(f"--baseline expects one of {there}, found {unknown[0]!r}.")
    # Baselines first, greedy before all: plots show speed-ups over the first; all else as it was named.
    order = {name: place for place, name in enumerate(BASELINES)}
    return sorted(found, key=lambda one: order.get(one.decoder.name, 2) if one.role == "baseline" else 3)


def check_models(entries: Sequence[Entry], translators: Sequence[Translator]) -> None:
    """Refuse decoders of models that are not there."""
    known = [name for translator in translators for name in model_names(translator)]
    for entry in entries:
        if entry.model and entry.model not in known:
            raise OptionError(f"--decoders expects one of the models {', '.join(known)}, found {entry.model!r}.")


def member_name(text: str, translators: Sequence[Translator]) -> str:
    """A member's name in the line-up, where `text` is written as --decoders has it; anything else stays as it is."""
    several = len(translators) > 1
    told, _, _ = text.partition(":")
    model, name = _split(told.strip(), several)
    owner = next((one for one in translators if several and model in model_names(one)), None)
    if name not in DECODERS or (several and owner is None):
        return text
    entry, *others = read_entries(text, several)
    if others:  # no member is called that
        return text
    return f"{owner.folder.name} {entry.name}" if owner is not None else entry.name


def model_names(translator: Translator) -> list[str]:
    """A model by its name and by its folder's, or that of the run that it lies in."""
    return list(dict.fromkeys([translator.folder.name, translator.folder.folder_name]))


def _candidate(
    translator: Translator,
    entry: Entry,
    name: str,
    options: dict[str, Any],
    baseline: bool,
    sample: int | None,
    drafter: str | None,
) -> Candidate:
    decoder, limits = translator.decoder(entry.decoder, **options)
    runner = translator.runner
    return Candidate(
        name,
        decoder,
        limits,
        role="baseline" if baseline else "candidate",
        model=model_tag(translator, drafter),
        device=str(runner.device),
        precision=runner.precision,
        runtime=runner.name,
        synchronize=synchronizer(runner.device),
        memory=cuda_probe(runner.device) if runner.device.type == "cuda" else None,
        captured=_capture_probe(runner),
        sample=sample,
        options=options,
        notes=model_notes(translator, drafter, entry.decoder),
    )


def _capture_probe(runner: Runner) -> Callable[[], Captured] | None:
    """Asks a runner that captures steps what that has cost; none for one that does not."""
    counting: Any = runner
    if not hasattr(counting, "statistics"):
        return None

    def ask() -> Captured:
        found = counting.statistics
        return Captured(found.recorded, found.seconds, found.graph_bytes, found.table_bytes)

    return ask
