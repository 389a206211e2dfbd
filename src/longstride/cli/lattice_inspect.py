"""longstride lattice inspect: show sentences' lattices, as text, SVG or Graphviz; count ranks and time stages.

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

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from longstride.cli.console import out, say
from longstride.cli.lattice_records import Book, RecordFile
from longstride.cli.options import Device, Experiment, Model, Precision, Set, Workload, open_model, settings
from longstride.cli.provenance import data_name
from longstride.cli.streams import STANDARD, input_file, result_files
from longstride.contract import OptionError
from longstride.contract.bundled import BUNDLED
from longstride.text.files import output_file, regular_target

if TYPE_CHECKING:
    from longstride.contract import Limits, Source
    from longstride.systems.lattice.decoder import LatticeDecoder
    from longstride.systems.lattice.picture import Node, Picture
    from longstride.translator import Translator

PLAIN_WIDTH = 100
"""Where there is no terminal to fit"""


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
    precision: Precision = "fp32",
    device: Device = "auto",
    record: RecordFile = None,
    experiment: Experiment = None,
    workload: Workload = None,
) -> None:
    """Show the lattice of each line: candidates, scores, the best path."""
    from longstride.systems.lattice.decoder import LatticeDecoder
    from longstride.systems.lattice.pipeline import STAGES

    if record is not None and (input is None or not (rank_file or time_file)):
        raise OptionError("--record expects --input and one of --ranks and --times beside it, found them missing.")
    svg, dot, rank_file, time_file, record = result_files(svg, dot, rank_file, time_file, record)
    input = input_file(input or Path(STANDARD))
    book = Book(record, experiment, workload or data_name(input))
    book.check()
    translator = open_model(model, precision=precision, device=device)
    decoder, limits = translator.decoder("lattice", **settings(set))
    assert isinstance(decoder, LatticeDecoder)
    if decoder.options.order != 2 and not (rank_file or time_file):
        raise OptionError(f"A picture expects order 2, found {decoder.options.order}.")
    lines = list(_lines(input))
    if rank_file is not None:
        found = _ranks(translator, decoder, limits, lines, rank_file)
        places = range(1, decoder.options.candidates + 1)
        _keep(book, translator, "ranks", "rank before the search", places, found, input, len(lines), decoder)
    if time_file is not None:
        timed = _times(translator, decoder, limits, lines, time_file)
        curves = {stage: [times[stage] for times in timed] for stage in STAGES}
        lengths = [times["output_length"] for times in timed]
        _keep(book, translator, "stages", "output tokens", lengths, curves, input, len(lines), decoder)
    if rank_file is None and time_file is None:
        _pictures(translator, decoder, limits, lines, words, svg, dot)


def _keep(
    book: Book,
    translator: Translator,
    name: str,
    axis: str,
    places: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    input: Path,
    sentences: int,
    decoder: LatticeDecoder,
) -> None:
    book.keep(translator, name, axis, places, curves, [input], sentences, decoder.signature)


def _lines(input: Path) -> Iterator[tuple[int, str]]:
    from longstride.text.corpus import read_lines

    return ((number, line) for number, line in enumerate(read_lines(input), start=1) if line.strip())


def _source(translator: Translator, number: int, line: str) -> Source:
    from longstride.contract import Source

    return Source.of(translator.encode([line], warn=say, first_line=number))


def _pictures(
    translator: Translator,
    decoder: LatticeDecoder,
    limits: Limits,
    lines: list[tuple[int, str]],
    words: int,
    svg: Path | None,
    dot: Path | None,
) -> None:
    from longstride.systems.lattice.picture import as_dot, as_svg, draw

    for place, (number, line) in enumerate(lines, start=1):
        lattice, paths = decoder.lattices(_source(translator, number, line), limits)
        picture = draw(lattice, 0, paths.states[0, 0], lambda token: _piece(translator, token), words, title=line)
        out.print(f"[bold]{number:>3}[/bold]  ", Text(line), sep="")
        tell(picture, out)
        for file, text in ((svg, as_svg), (dot, as_dot)):
            if file is not None:
                alone = place == 1 or regular_target(file) is None
                target = file if alone else file.with_name(f"{file.stem}-{place}{file.suffix}")
                with output_file(target) as written:
                    written.write(text(picture).encode())


def _piece(translator: Translator, token: int) -> str:
    return translator.target_tokenizer.pieces([token])[0]


def tell(picture: Picture, console: Console) -> None:
    """The picture as text, as many columns side by side as the terminal is wide."""
    width = console.width if console.is_terminal else PLAIN_WIDTH
    blocks: list[list[int]] = [[]]
    used = 0
    widths = [max(cell_len(text) for node in nodes for text in _cell(node)) + 2 for nodes in picture.columns]
    for column, wide in enumerate(widths):
        if blocks[-1] and used + wide > width - 5:
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += wide
    for block in blocks:
        console.print(Text("     ") + _row([str(column + 1) for column in block], widths, block, "dim"))
        for place in range(max(len(picture.columns[column]) for column in block)):
            there = [_at(picture, column, place) for column in block]
            for part in (0, 1):
                texts = [_cell(node)[part] if node is not None else "" for node in there]
                styles = ["bold green" if node is not None and node.chosen else "dim" * part for node in there]
                console.print(Text("     ") + _row(texts, widths, block, styles))
        console.print()
    console.print(Text(f"     log-probability {picture.score:.2f}", style="dim"))


def _at(picture: Picture, column: int, place: int) -> Node | None:
    nodes = picture.columns[column]
    return nodes[place] if place < len(nodes) else None


def _cell(node: Node) -> tuple[str, str]:
    return node.label, "best" if node.chosen else f"-{node.behind:.2f}"


def _row(texts: list[str], widths: list[int], block: list[int], styles: str | list[str]) -> Text:
    row = Text()
    for place, (text, column) in enumerate(zip(texts, block, strict=True)):
        style = styles if isinstance(styles, str) else styles[place]
        row.append(text + " " * (widths[column] - cell_len(text)), style=style)
    row.rstrip()
    return row


def _ranks(
    translator: Translator, decoder: LatticeDecoder, limits: Limits, lines: list[tuple[int, str]], file: Path
) -> dict[str, list[int]]:
    """How often the search chose the best, the second best, ... word of a column, by two orders before it."""
    from longstride.systems.lattice.inspection import histogram, ranks

    k = decoder.options.candidates
    counts: dict[str, Counter[int]] = {"edges": Counter(), "candidates": Counter()}
    for number, line in lines:
        lattice, paths = decoder.lattices(_source(translator, number, line), limits)
        for by in ("edges", "candidates"):
            stood = ranks(lattice, paths.states[:, 0], by)
            counts[by].update(dict(enumerate(histogram(stood, k), start=1)))
    words = sum(counts["edges"].values())
    result: dict[str, Any] = {"decoder": decoder.signature, "sentences": len(lines), "words": words}
    for by, found in counts.items():
        result[by] = [found[rank] for rank in range(1, k + 1)]
        share = 100 * found[1] / max(1, words)
        out.print(f"{share:.1f} % of {words:,} chosen words stood first by {by} before the search")
    with output_file(file) as written:
        written.write(f"{json.dumps(result)}\n".encode())
    return {by: result[by] for by in counts}


def _times(
    translator: Translator, decoder: LatticeDecoder, limits: Limits, lines: list[tuple[int, str]], file: Path
) -> list[dict[str, Any]]:
    """Stage by stage; the first sentences run once before, so that none pays for the start."""
    import torch

    from longstride.systems.lattice.inspection import stage_times
    from longstride.systems.lattice.pipeline import STAGES

    sources = [_source(translator, number, line) for number, line in lines]
    device = translator.runner.device

    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for source in sources[:8]:
        stage_times(decoder, source, limits, synchronize)
    found = [asdict(stage_times(decoder, source, limits, synchronize)) for source in sources]
    for stage in STAGES:
        mean = sum(times[stage] for times in found) / max(1, len(found)) / 1000
        out.print(f"{stage:>10}  {mean:8.3f} ms a sentence")
    with output_file(file) as written:
        written.write("".join(json.dumps(times) + "\n" for times in found).encode())
    return found
