"""longstride lattice recall and inspect: what lattices hold, what the search changed, how long its stages take.

    1  She reads a book .
         1        2        3        4        5        6
        ▁Sie     ▁liest   ▁ein     ▁Buch    ▁.       </s>
         best     best     best     best     best     best
        ▁Es      ▁las     ▁eine    ▁Bücher
         -3.10    -1.92    -2.27    -4.40

Words of a column stand below each other, those first through which the better paths go; the number says how far behind
the best path they leave one.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from longstride.cli.console import Bar, out, say
from longstride.cli.options import (
    Device,
    Experiment,
    Model,
    Precision,
    Reference,
    Runtime,
    Set,
    Source,
    Workload,
    open_model,
    say_report,
    settings,
    whole_number,
)
from longstride.cli.provenance import data_name, origin_of
from longstride.cli.streams import STANDARD, input_file, record_file, result_files
from longstride.contract import ModelFolderError, OptionError
from longstride.contract.bundled import BUNDLED
from longstride.contract.options import shown
from longstride.text.files import output_file, regular_target

if TYPE_CHECKING:
    from longstride import contract
    from longstride.contract import Limits
    from longstride.model_folder import ModelFolder
    from longstride.systems.lattice.candidates import CandidateSource
    from longstride.systems.lattice.decoder import LatticeDecoder
    from longstride.systems.lattice.picture import Node, Picture
    from longstride.translator import Translator

TABLES = "tables"
"""The name and the kind of the part that holds candidate tables."""
SIZES = "1,2,4,8,16,32,64,128,256"
PLAIN_WIDTH = 100
"""The width of what is shown where there is no terminal to fit."""

RecordFile = Annotated[Path | None, typer.Option("--record", help="Append records of it to this file (JSON lines).")]


# --- recall ----------------------------------------------------------------------------------------------------------


def recall(
    source: Source,
    reference: Reference,
    model: Model = BUNDLED,
    sizes: Annotated[str, typer.Option("--candidates", help="Values of K, with commas between.")] = SIZES,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    device: Device = "auto",
    record: RecordFile = None,
    experiment: Experiment = None,
    workload: Workload = None,
) -> None:
    """Say how many words of a reference the candidate lattice holds, by K and construction."""
    from longstride.systems.lattice.inspection import recall as measure_recall
    from longstride.text.binarized import binarize
    from longstride.text.filtering import LengthFilter

    values = _sizes(sizes)
    record = record_file(record)
    source, reference = input_file(source), input_file(reference)
    translator = open_model(model, device=device)
    constructions = constructions_of(translator)
    with tempfile.TemporaryDirectory() as folder:
        corpus = binarize(
            source,
            reference,
            translator.source_tokenizer,
            Path(folder) / "corpus",
            LengthFilter(max_tokens=translator.longest),
            target_tokenizer=translator.target_tokenizer,
        )
        found: dict[str, dict[int, float]] = {}
        for name, construction in constructions.items():
            with Bar(name, len(corpus)) as bar:
                found[name] = measure_recall(construction, corpus, values, translator.runner.device, bar.to)
        words = int((corpus.target.lengths - 1).sum())
    curves = {name: [shares[value] for value in values] for name, shares in found.items()}
    if record is not None:
        about = experiment, workload or data_name(source), [source, reference], len(corpus)
        _keep(record, about, translator, "recall", "candidates per place", values, curves, words=words)
    if as_json:
        out.print(json.dumps({"pairs": len(corpus), "words": words, "recall": found}), markup=False)
        return
    say(f"Share of {words:,} words of {len(corpus):,} sentences that are among the K candidates of their place.")
    out.print(f"{'K':>5}" + "".join(f"{name:>10}" for name in found))
    for value in values:
        out.print(f"{value:>5}" + "".join(f"{100 * found[name][value]:>9.2f}%" for name in found))


def _sizes(text: str) -> list[int]:
    values = [whole_number(part, most=10**6) for part in text.split(",")]
    if None in values:
        raise OptionError(f"--candidates expects numbers from 1 to {10**6} with commas between, found {shown(text)}.")
    return sorted(value for value in values if value is not None)


def constructions_of(translator: Translator) -> dict[str, CandidateSource]:
    """Every way in which a model's parts propose words, by the names that the lattice decoder has for its own."""
    from longstride.systems.lattice import scoring
    from longstride.systems.lattice.candidates import ScoredCandidates
    from longstride.systems.lattice.tables import SharedVocabulary
    from longstride.systems.non_autoregressive import filling

    found: dict[str, CandidateSource] = {}
    scorers: dict[str, tuple[str, Any]] = {
        "scorer": ("model", scoring.place_scores),
        "one-pass": ("one-pass", filling.place_scores),
    }
    for name, config in sorted(translator.folder.parts.items(), key=lambda item: item[1].kind != TABLES):
        part: Any = translator.part(name) if config.kind in (TABLES, *scorers) else None
        if config.kind == TABLES:
            found |= {"tables": part, "shared": SharedVocabulary(part)}
        elif part is not None:
            construction, scores = scorers[config.kind]
            vocabulary = part.options.vocabulary
            found[construction] = ScoredCandidates(
                partial(scores, part), vocabulary, translator.runner, translator.folder.special
            )
    if not found:
        raise no_tables(translator.folder)
    return found


def no_tables(folder: ModelFolder) -> ModelFolderError:
    """The refusal of a folder without tables."""
    return ModelFolderError(
        f"{folder.path}: expected a model folder with candidate tables, found the parts {', '.join(folder.parts)}; "
        f"make some with `longstride lattice build`."
    )


def _keep(
    record: Path,
    about: tuple[str | None, str, Sequence[Path], int],
    translator: Translator,
    name: str,
    axis: str,
    places: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    decoder: str = "",
    **notes: Any,
) -> None:
    """Append a record of curves; `about`: experiment, workload, the texts that were read, and their sentences."""
    from longstride.bench.record_files import append_records
    from longstride.bench.record_parts import Curve, WorkloadTag
    from longstride.bench.records import Curves
    from longstride.cli.provenance import model_notes, model_tag
    from longstride.text.files import file_sha256

    experiment, workload, texts, sentences = about
    tag = model_tag(translator)
    told = hashlib.sha256("".join(file_sha256(path) for path in texts).encode()).hexdigest()
    made = Curves(
        origin_of(experiment or tag.name, translator),
        name,
        tag,
        WorkloadTag(workload, told, sentences),
        axis,
        tuple(map(float, places)),
        tuple(Curve(one, tuple(map(float, values))) for one, values in curves.items()),
        decoder,
        {**model_notes(translator), "precision": translator.runner.precision, **notes},
    )
    append_records(record, [made])
    say(f"Record appended to {record}.")


# --- inspect ---------------------------------------------------------------------------------------------------------


def inspect(
    model: Model = BUNDLED,
    input: Annotated[
        Path | None, typer.Option("-i", "--input", help="Sentences to look at (default, and -: stdin).")
    ] = None,
    set: Set = None,
    words: Annotated[int, typer.Option(min=1, max=4096, help="Show so many words of each column.")] = 6,
    svg: Annotated[
        Path | None, typer.Option(help="Draw here; with several sentences NAME-2.svg, NAME-3.svg, ... follow.")
    ] = None,
    dot: Annotated[Path | None, typer.Option(help="The same as Graphviz source.")] = None,
    rank_file: Annotated[
        Path | None,
        typer.Option("--ranks", help="Count where the chosen words stood before the search; write the counts as JSON."),
    ] = None,
    time_file: Annotated[
        Path | None, typer.Option("--times", help="Time each stage, sentence by sentence; write JSON lines.")
    ] = None,
    runtime: Runtime = "auto",
    precision: Precision = "auto",
    device: Device = "auto",
    record: RecordFile = None,
    experiment: Experiment = None,
    workload: Workload = None,
) -> None:
    """Show the lattice of each line: candidates, scores, the best path."""
    from longstride.bench.record_files import check_records
    from longstride.contract import Source
    from longstride.systems.lattice.decoder import LatticeDecoder
    from longstride.systems.lattice.pipeline import STAGES
    from longstride.text.corpus import read_lines

    if record is not None and (input is None or not (rank_file or time_file)):
        raise OptionError("--record expects --input and one of --ranks and --times beside it, found them missing.")
    svg, dot, rank_file, time_file, record = result_files(svg, dot, rank_file, time_file, record)
    input = input_file(input or Path(STANDARD))
    check_records(record)
    translator = open_model(model, runtime, precision, device)
    decoder, limits = translator.decoder("lattice", **settings(set))
    assert isinstance(decoder, LatticeDecoder)
    if decoder.options.order != 2 and not (rank_file or time_file):
        raise OptionError(f"A picture expects order 2, found {decoder.options.order}.")
    numbered = [(number, line) for number, line in enumerate(read_lines(input), start=1) if line.strip()]
    about = experiment, workload or data_name(input), [input], len(numbered)

    def encoded(number: int, line: str) -> Source:
        return Source.of(translator.encode([line], warn=say, first_line=number))

    if rank_file is not None:
        found = _ranks(decoder, limits, [encoded(*one) for one in numbered], rank_file)
        places = range(1, decoder.options.candidates + 1)
        if record is not None:
            _keep(record, about, translator, "ranks", "rank before the search", places, found, decoder.signature)
    if time_file is not None:
        timed = _times(translator, decoder, limits, [encoded(*one) for one in numbered], time_file)
        curves = {stage: [times[stage] for times in timed] for stage in STAGES}
        lengths = [times["output_length"] for times in timed]
        if record is not None:
            _keep(record, about, translator, "stages", "output tokens", lengths, curves, decoder.signature)
    if rank_file is None and time_file is None:
        for place, (number, line) in enumerate(numbered, start=1):
            out.print(f"[bold]{number:>3}[/bold]  ", Text(line), sep="")
            _draw(translator, decoder, limits, encoded(number, line), line, words, {"svg": svg, "dot": dot}, place)
    say_report(translator, runtime=runtime)


def _draw(
    translator: Translator,
    decoder: LatticeDecoder,
    limits: Limits,
    source: contract.Source,
    title: str,
    words: int,
    files: Mapping[str, Path | None],
    place: int,
) -> None:
    """Show the lattice of one sentence, the `place`-th, and write it to files."""
    from longstride.systems.lattice.picture import as_dot, as_svg, draw

    lattice, paths = decoder.lattices(source, limits)
    pieces = translator.target_tokenizer.pieces
    picture = draw(lattice, 0, paths.states[0, 0], lambda token: pieces([token])[0], words, title=title)
    tell(picture, out)
    for kind, file in files.items():
        if file is not None:
            alone = place == 1 or regular_target(file) is None
            target = file if alone else file.with_name(f"{file.stem}-{place}{file.suffix}")
            with output_file(target) as written:
                written.write({"svg": as_svg, "dot": as_dot}[kind](picture).encode())


def tell(picture: Picture, console: Console) -> None:
    """The picture as text, as many columns side by side as the terminal is wide."""
    width = console.width if console.is_terminal else PLAIN_WIDTH
    blocks: list[list[int]] = [[]]
    widths = [max(cell_len(text) for node in nodes for text in _cell(node)) + 2 for nodes in picture.columns]
    for column, wide in enumerate(widths):
        if blocks[-1] and sum(widths[one] for one in blocks[-1]) + wide > width - 5:
            blocks.append([])
        blocks[-1].append(column)
    for block in blocks:
        across = [widths[column] for column in block]
        console.print(_row([str(column + 1) for column in block], ["dim"] * len(block), across))
        for place in range(max(len(picture.columns[column]) for column in block)):
            nodes = [next(iter(picture.columns[column][place : place + 1]), None) for column in block]
            for part in (0, 1):
                texts = [_cell(node)[part] if node is not None else "" for node in nodes]
                styles = ["bold green" if node is not None and node.chosen else "dim" * part for node in nodes]
                console.print(_row(texts, styles, across))
        console.print()
    console.print(Text(f"     log-probability {picture.score:.2f}", style="dim"))


def _cell(node: Node) -> tuple[str, str]:
    return node.label, "best" if node.chosen else f"-{node.behind:.2f}"


def _row(texts: list[str], styles: list[str], widths: list[int]) -> Text:
    row = Text("     ")
    for text, style, width in zip(texts, styles, widths, strict=True):
        row.append(text + " " * (width - cell_len(text)), style=style)
    row.rstrip()
    return row


def _ranks(
    decoder: LatticeDecoder, limits: Limits, sources: Sequence[contract.Source], file: Path
) -> dict[str, list[int]]:
    """How often the search chose the best, the second best, ... word of a column, by two orders before it."""
    from longstride.systems.lattice.inspection import histogram, ranks

    k = decoder.options.candidates
    found: dict[str, list[int]] = {"edges": [0] * k, "candidates": [0] * k}
    for source in sources:
        lattice, paths = decoder.lattices(source, limits)
        for by in ("edges", "candidates"):
            stood = histogram(ranks(lattice, paths.states[:, 0], by), k)
            found[by] = [one + more for one, more in zip(found[by], stood, strict=True)]
    words = sum(found["edges"])
    result = {"decoder": decoder.signature, "sentences": len(sources), "words": words, **found}
    with output_file(file) as written:
        written.write(f"{json.dumps(result)}\n".encode())
    for by, counts in found.items():
        share = 100 * counts[0] / max(1, words)
        out.print(f"{share:.1f} % of {words:,} chosen words stood first by {by} before the search")
    return found


def _times(
    translator: Translator, decoder: LatticeDecoder, limits: Limits, sources: Sequence[contract.Source], file: Path
) -> list[dict[str, Any]]:
    """Stage by stage; the first sentences run once before, so that none pays for the start."""
    from longstride.bench.profile_watch import synchronizer
    from longstride.systems.lattice.inspection import stage_times
    from longstride.systems.lattice.pipeline import STAGES

    synchronize = synchronizer(translator.runner.device)
    for source in sources[:8]:
        stage_times(decoder, source, limits, synchronize)
    found = [asdict(stage_times(decoder, source, limits, synchronize)) for source in sources]
    with output_file(file) as written:
        written.write("".join(json.dumps(times) + "\n" for times in found).encode())
    for stage in STAGES:
        mean = sum(times[stage] for times in found) / max(1, len(found)) / 1000
        out.print(f"{stage:>10}  {mean:8.3f} ms a sentence")
    return found
