"""longstride report: tables and plots from records, and the places in other pages that show them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longstride.cli.console import say
from longstride.cli.streams import input_file, result_folder
from longstride.contract import InputError, WorkError
from longstride.text.files import check_writable

RECORDS = Path("benchmarks/results")


def report(
    records: Annotated[
        list[Path] | None, typer.Argument(help=f"Files of records (default: all in {RECORDS}/).", show_default=False)
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for results.md, results/ and figures/.")
    ] = Path("docs"),
    page: Annotated[
        list[Path] | None,
        typer.Option(help="Page with marked places to fill (default: README.md and all pages in the output folder)."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 naming the files that are stale.")
    ] = False,
) -> None:
    """Render every table and plot from records.

    A page shows a table between the lines <!-- report:NAME --> and <!-- /report -->; the names are those of the
    tables of the results pages, as an unknown one is told.
    """
    from longstride.bench.page import PAGE
    from longstride.bench.record_files import read_records
    from longstride.bench.report import insert_all, render

    files = records or sorted(RECORDS.glob("*.jsonl"))
    if not files:
        raise InputError(
            f"{RECORDS}: expected files of records (*.jsonl), found none; name files, or run it in a checkout."
        )
    found = read_records(input_file(file) for file in files)
    # Naming the results page itself, which has no marked places, leaves all others as they are.
    pages = [one for one in page or _pages(output) if one != output / PAGE]
    if not check:
        result_folder(output)
        check_writable(*pages)
        for one in pages:  # what is wrong with them is said before anything is written
            insert_all(one, found, output, check=True)
    stale = render(found, output, check)
    stale += [one for one in pages if insert_all(one, found, output, check)]
    if check:
        if stale:
            raise WorkError(f"Stale: {', '.join(map(str, stale))}; render them with longstride report.")
        say(f"Up to date: {len(found)} records.")
        return
    for one in stale:
        say(f"Wrote {one}." if one.exists() else f"Removed {one}.")
    if not stale:
        say("Everything was up to date.")


def _pages(output: Path) -> list[Path]:
    """Whatever may have marked places, in this folder and the output's."""
    from longstride.bench.page import PAGE

    readme = [Path("README.md")] if Path("README.md").is_file() else []
    return readme + [path for path in sorted(output.glob("*.md")) if path.name != PAGE]
