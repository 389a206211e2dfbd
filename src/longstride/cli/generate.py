"""longstride generate: a person's own picture, enlarged by a model of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longstride.cli import options as shared
from longstride.cli.console import say
from longstride.cli.streams import input_file
from longstride.contract import OptionError

SUPER_RESOLUTION = "super-resolution"


def generate(
    picture: Annotated[Path, typer.Argument(help="Picture to enlarge, in any format that Pillow reads.")],
    output: Annotated[Path, typer.Argument(help="PNG file to write.")],
    model: Annotated[str, typer.Option("-m", "--model", help="Model folder of pictures, or a run's folder.")],
    task: Annotated[str, typer.Option(help="What the model does: super-resolution.")] = SUPER_RESOLUTION,
    decoder: shared.DecoderName = None,
    set: shared.Set = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Pixels a side that the model is shown, a multiple of its input (default)."),
    ] = None,
    runtime: shared.Runtime = "auto",
    precision: shared.Precision = "auto",
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    batch: shared.Batch = 32,
) -> None:
    """Enlarge a picture by a model of pictures.

    The middle square of the picture is reduced, by averaging, to as many pixels a side as the model reads (8), or to
    --size of them, and cut into tiles of that many. Each tile is enlarged by itself (to 32 x 32), and the tiles are put
    together again. What a model knows is what it has seen: one of faces makes a face of everything.
    """
    import numpy as np

    from longstride.cli.picture_files import png_file, read_photograph, write_png
    from longstride.nn.transformer import Transformer
    from longstride.text.pixels import PixelTokenizer, line_of, picture_of

    if task != SUPER_RESOLUTION:
        raise OptionError(f"--task expects {SUPER_RESOLUTION}, found {task!r}.")
    file = png_file(output)
    translator = shared.open_model(model, runtime, precision, device, None, threads, announce=False)
    options = shared.settings(set)
    chosen, _ = translator.decoder(decoder, **options)
    parts = [part for part in translator.parts_of(chosen.name).values() if isinstance(part, Transformer)]
    if not isinstance(translator.target_tokenizer, PixelTokenizer) or not parts:
        raise OptionError(f"--model expects a model of pictures, found {translator.folder.path}, which reads text.")
    shape = parts[0].options
    reads = shape.picture // shape.picture_scale
    shown = size or reads
    if shown % reads:
        raise OptionError(
            f"--size expects a multiple of {reads}, the pixels a side that the model reads, found {size}."
        )
    photograph = read_photograph(input_file(picture), shown)
    tiles = [
        photograph.picture[top : top + reads, left : left + reads]
        for top in range(0, shown, reads)
        for left in range(0, shown, reads)
    ]
    across = shown // reads
    made = translator.translate([line_of(tile) for tile in tiles], decoder, batch=batch, trace=True, **options)
    enlarged = [picture_of(one.text, f"tile {number}") for number, one in enumerate(made, start=1)]
    rows = [np.concatenate(enlarged[first : first + across], axis=1) for first in range(0, len(tiles), across)]
    write_png(file, np.concatenate(rows, axis=0))
    iterations = sum(one.trace.iterations for one in made if one.trace is not None)
    values = sum(len(one.tokens) for one in made)
    width, height = photograph.found
    drawn = across * shape.picture
    shared.say_report(translator, runtime=runtime, decoders=dict.fromkeys(one.decoder for one in made))
    say(
        f"{picture} ({width} x {height}): its middle square of {photograph.side} pixels a side, averaged to {shown} x "
        f"{shown}, in {len(tiles)} tile{'s' if len(tiles) > 1 else ''} of {reads} x {reads}; {output} has {drawn} x "
        f"{drawn}: {values:,} values in {iterations:,} iterations, {values / max(1, iterations):.2f} at a time."
    )
