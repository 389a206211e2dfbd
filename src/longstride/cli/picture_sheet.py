"""Two systems' pictures compared by people, in place of the paper's raters (blockwise decoding, section 7.2, Table 3).

A sheet is one web page with pairs of pictures of the same input, in random order and each pair's sides drawn by lot; it
does not say which is whose. The key, a file of its own, does. The page gives the rater's answers as a file, and `tally`
counts them by the key, with the paper's 90 % bootstrap interval.
"""

from __future__ import annotations

import hashlib
import html
import json
import random
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from longstride.cli.console import say
from longstride.cli.streams import input_file, result_files
from longstride.contract import InputError

FORMAT = "longstride-pictures-key 1"
ANSWERS = ("left", "right")

PAGE = """<!doctype html>
<meta charset="utf-8"><title>Which was taken by a camera?</title>
<style>
body {{ font: 16px sans-serif; max-width: 60em; margin: 2em auto; }}
.pair {{ display: flex; gap: 2em; align-items: center; margin: 2em 0; }}
img {{ width: 192px; height: 192px; image-rendering: pixelated; display: block; }}
label {{ cursor: pointer; text-align: center; }}
</style>
<h1>Which was taken by a camera?</h1>
<p>{count} pairs. In each, choose the picture that you think is more likely to have been taken by a camera; if you
cannot tell, guess. Then save your answers and send the file back.</p>
<form id="sheet">
{pairs}
<button type="submit">Save the answers</button> <span id="told"></span>
</form>
<script>
document.getElementById("sheet").addEventListener("submit", (event) => {{
  event.preventDefault();
  const answers = Object.fromEntries(new FormData(event.target));
  const missing = {count} - Object.keys(answers).length;
  document.getElementById("told").textContent = missing ? missing + " pairs have no answer yet." : "";
  if (missing) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify({{sheet: "{sheet}", answers: answers}})]));
  link.download = "answers-{sheet}.json";
  link.click();
}});
</script>
"""

PAIR = """<div class="pair"><b>{number}</b>
<label><img alt="left" src="{left}"><input type="radio" name="{number}" value="left"> left</label>
<label><img alt="right" src="{right}"><input type="radio" name="{number}" value="right"> right</label></div>"""


def compare(
    one: Annotated[Path, typer.Argument(help="One system's pictures, one a line.")],
    other: Annotated[Path, typer.Argument(help="The other's, of the same inputs.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Web page to write, for people.")],
    key: Annotated[Path, typer.Option(help="File that says which picture is whose (JSON), not for them.")],
    pairs: Annotated[int, typer.Option(min=1, max=10**4, help="How many pairs, drawn by lot.")] = 50,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="Draws the same sheet again (default: by chance).")
    ] = None,
) -> None:
    """Write a sheet on which people say which of two pictures looks like a photograph.

    Pairs that are equal are left out: there is nothing to choose.
    """
    from longstride.cli.picture_files import inlined
    from longstride.cli.pictures import pictures_of
    from longstride.text.files import output_file

    written = result_files(output, key)
    systems = [input_file(file) for file in (one, other)]
    both = [pictures_of(file) for file in systems]
    if len(both[0]) != len(both[1]):
        raise InputError(f"{other}: expected {len(both[0])} pictures, as {one} has, found {len(both[1])}.")
    differ = [place for place, (a, b) in enumerate(zip(*both, strict=True)) if a.tobytes() != b.tobytes()]
    if not differ:
        raise InputError(f"{other}: expected a picture that is not {one}'s own, found none.")
    lot = random.Random(secrets.randbits(64) if seed is None else seed)
    chosen = lot.sample(differ, min(pairs, len(differ)))
    left = [lot.randrange(2) for _ in chosen]
    shown = [
        PAIR.format(number=number, left=inlined(both[side][place]), right=inlined(both[1 - side][place]))
        for number, (place, side) in enumerate(zip(chosen, left, strict=True), start=1)
    ]
    sheet = hashlib.sha256("".join(shown).encode()).hexdigest()[:12]
    page = PAGE.format(count=len(shown), pairs="\n".join(shown), sheet=html.escape(sheet))
    answers = [
        {"pair": number, "line": place + 1, "left": str((one, other)[side])}
        for number, (place, side) in enumerate(zip(chosen, left, strict=True), start=1)
    ]
    told = {"format": FORMAT, "sheet": sheet, "systems": [str(one), str(other)], "equal": len(both[0]) - len(differ)}
    for path, text in zip(written, (page, json.dumps({**told, "pairs": answers}, indent=1) + "\n"), strict=True):
        assert path is not None
        with output_file(path) as file:
            file.write(text.encode())
    say(f"{output}: {len(shown)} pairs of {len(differ):,} that differ ({told['equal']:,} are equal); key: {key}.")


def tally(
    key: Annotated[Path, typer.Argument(help="The sheet's key.")],
    answers: Annotated[list[Path], typer.Argument(help="What people saved, a file each.")],
) -> None:
    """Count the votes for each of the two systems of a sheet, with a 90 % bootstrap interval (JSON)."""
    import sys

    import numpy as np

    from longstride.tasks.bootstrap import RESAMPLES, SEED, resample_indices

    told = _object(key)
    if told.get("format") != FORMAT:
        raise InputError(f"{key}: expected the key of a sheet, found something else.")
    left, systems = {str(pair["pair"]): pair["left"] for pair in told["pairs"]}, told["systems"]
    votes = []
    for file in answers:
        found = _object(file)
        if found.get("sheet") != told["sheet"]:
            raise InputError(f"{file}: expected answers to the sheet {told['sheet']}, found {found.get('sheet')!r}.")
        given = found.get("answers")
        if not isinstance(given, dict) or {*given} != {*left} or not {*given.values()} <= {*ANSWERS}:
            raise InputError(f"{file}: expected left or right for each of {len(left)} pairs, found something else.")
        votes += [(left[pair] == systems[0]) == (side == "left") for pair, side in sorted(given.items())]
    cast = np.array(votes, dtype=np.float64)
    drawn = 100 * cast[resample_indices(len(cast), RESAMPLES, SEED)].mean(axis=1)
    low, high = np.percentile(drawn, [5, 95])
    result = {"votes": len(votes), "raters": len(answers), "for": systems[0], "over": systems[1]}
    result |= {"percent": round(100 * float(cast.mean()), 2), "interval_90": [round(low, 2), round(high, 2)]}
    sys.stdout.write(json.dumps(result) + "\n")


def _object(file: Path) -> dict[str, Any]:
    from longstride.text.files import read_json

    try:
        found = read_json(input_file(file))
    except OSError as error:
        raise InputError(f"{file}: could not be read ({error.strerror or error}).") from None
    except ValueError as error:
        raise InputError(f"{file}: expected JSON, found {error}.") from None
    if not isinstance(found, dict):
        raise InputError(f"{file}: expected a JSON object, found something else.")
    return found
