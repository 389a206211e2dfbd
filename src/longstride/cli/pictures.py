"""longstride pictures: test sets of pictures as lines of text, grids of them, and sheets for people to compare two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longstride.cli.console import say
from longstride.cli.picture_sheet import compare, tally
from longstride.cli.streams import input_file, result_folder
from longstride.contract import InputError, OptionError

if TYPE_CHECKING:
    from longstride.text.pixels import Picture

app = typer.Typer(
    help="Test sets of pictures, grids of them, and sheets on which people compare two models'.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.command()(compare)
app.command()(tally)


@app.command()
def prepare(
    file: Annotated[Path, typer.Argument(help="NumPy file (.npz) with arrays of bytes [pictures, pixels, pixels, 3].")],
    folder: Annotated[Path, typer.Argument(help="Folder for the lines.")],
    scale: Annotated[int, typer.Option(min=1, max=4096, help="How many times fewer pixels sources have a side.")] = 4,
    first: Annotated[int, typer.Option(min=0, max=10**9, help="So many of each array (0: all).")] = 0,
) -> None:
    """Write every array of a NumPy file as two files of lines: the pictures, and the same reduced by averaging.

    An array `test` of 32 x 32 pixels becomes test.32 and test.8; train, valid and test are what recipes ask for.
    """
    from longstride.text.corpus import write_lines
    from longstride.text.pixels import line_of, read_pictures, reduced

    file = input_file(file)
    result_folder(folder)
    arrays = read_pictures(file)
    for name, pictures in arrays.items():
        if not name.isidentifier():
            raise InputError(f"{file}: expected names of arrays that files can have, found {name!r}.")
        if pictures.shape[1] % scale:
            raise OptionError(f"--scale expects a divisor of {pictures.shape[1]}, the pixels of {name}, found {scale}.")
    folder.mkdir(parents=True, exist_ok=True)
    for name, pictures in arrays.items():
        chosen = pictures[:first] if first else pictures
        pixels = pictures.shape[1]
        for size, some in ((pixels, chosen), (pixels // scale, reduced(chosen, scale))):
            count = write_lines(folder / f"{name}.{size}", (line_of(one) for one in some))
            say(f"{folder / name}.{size}: {count:,} pictures of {size} x {size}.")


@app.command()
def grid(
    files: Annotated[list[Path], typer.Argument(help="Files of pictures, one a line: a column of the grid each.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG file to write.")],
    rows: Annotated[int, typer.Option(min=1, max=10**4, help="Pictures of each file.")] = 8,
    first: Annotated[int, typer.Option(min=1, max=10**9, help="The line that the grid begins with.")] = 1,
    magnify: Annotated[int, typer.Option(min=1, max=64, help="Pixels a side that stand for each pixel.")] = 3,
) -> None:
    """Draw pictures side by side: a row for each line, a column for each file.

    Such as the input, greedy's output, another decoder's, and the truth.
    """
    from longstride.cli.picture_files import grid as drawn
    from longstride.cli.picture_files import png_file, write_png

    written = png_file(output)
    columns = [pictures_of(file, first, rows) for file in map(input_file, files)]
    shortest = min(len(column) for column in columns)
    if not shortest:
        raise InputError(f"--first expects a line that every file has, found {first}.")
    sheet = drawn([[column[place] for column in columns] for place in range(shortest)], magnify)
    write_png(written, sheet)
    say(f"{output}: {shortest} rows of {', '.join(str(file) for file in files)}.")


def pictures_of(file: Path, first: int = 1, count: int | None = None) -> list[Picture]:
    """So many pictures of a file, from line `first` on; none: all."""
    from itertools import islice

    from longstride.text.corpus import read_lines
    from longstride.text.pixels import picture_of

    lines = islice(read_lines(file), first - 1, None if count is None else first - 1 + count)
    return [picture_of(line, f"{file}, line {number}") for number, line in enumerate(lines, start=first)]
