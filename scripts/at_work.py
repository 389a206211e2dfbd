"""Draw decoders at work: what each iteration of a trace wrote, as a picture (SVG).

    longstride translate --decoder draft-verify --trace trace.jsonl < one-line.txt
    python scripts/at_work.py trace.jsonl draft-verify.svg

A row is an iteration, a column a place of the output. Needs nothing but Python; `make at-work` draws those of docs/.
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import Any

LETTER, PADDING, ROW, GAP, LEFT = 7.6, 12, 30, 8, 34
STYLE = """
text { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; fill: #1f2933; text-anchor: middle; }
.number, .key { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #52606d; text-anchor: start; }
rect { rx: 4; stroke-width: 1.2; }
.before rect { fill: #eef1f4; stroke: none; } .before text { fill: #7b8794; }
.stood rect { fill: #d3f2df; stroke: #2f9e5f; }
.own rect { fill: #d6e9ff; stroke: #2b6cb0; }
.rejected rect { fill: none; stroke: #d64545; stroke-dasharray: 3 2; }
.rejected text { fill: #b03030; text-decoration: line-through; }
"""
KINDS = {
    "stood": "a drafted token that stood",
    "own": "the model's own",
    "rejected": "drafted and rejected",
    "before": "was there already",
}
Cell = tuple[int, str, str]
"""Place, token, kind."""


def rows(trace: dict[str, Any]) -> list[list[Cell]]:
    """Of each iteration, what stands where."""
    there: dict[int, str] = {}
    found = []
    for step in trace["steps"]:
        accepted, places, pieces = step["accepted"], step["positions"], step["pieces"]
        cells = [(place, piece, "before") for place, piece in there.items()]
        new = zip(places, pieces, strict=True)
        cells += [(place, piece, "stood" if number < accepted else "own") for number, (place, piece) in enumerate(new)]
        if places and "parents" not in step:  # the branches of a tree have no place of their own in a row
            begin = places[0] + len(places)
            behind = step["draft_pieces"][accepted + 1 :] if len(places) > accepted else []
            cells += [(begin + number, piece, "rejected") for number, piece in enumerate(behind)]
        there |= dict(zip(places, pieces, strict=True))
        found.append(cells)
    return found


def drawing(trace: dict[str, Any]) -> str:
    """The picture."""
    found = rows(trace)
    last = max(place for cells in found for place, _, kind in cells if kind != "rejected")
    found = [[cell for cell in cells if cell[0] <= last] for cells in found]  # what would follow the end is left out
    longest = [max(len(shown(t)) for cells in found for p, t, _ in cells if p == place) for place in range(last + 1)]
    widths = [letters * LETTER + PADDING for letters in longest]
    lefts = [LEFT + sum(widths[:place]) + GAP * place for place in range(last + 1)]
    kinds = [kind for kind in KINDS if any(cell[2] == kind for cells in found for cell in cells)]
    keys = {kind: 44 + 6.6 * len(KINDS[kind]) for kind in kinds}
    width, height = max(lefts[-1] + widths[-1] + GAP, LEFT + sum(keys.values())), (ROW + GAP) * len(found) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}"><style>{STYLE}</style>',
        f'<rect width="{width:.0f}" height="{height}" style="fill: #ffffff; stroke: none"/>',
    ]
    for number, cells in enumerate(found):
        top = GAP + number * (ROW + GAP)
        parts.append(f'<text class="number" x="{GAP}" y="{top + 20}">{number + 1}</text>')
        for place, token, kind in cells:
            parts.append(
                f'<g class="{kind}"><rect x="{lefts[place]:.1f}" y="{top}" width="{widths[place]:.1f}" height="{ROW}"/>'
                f'<text x="{lefts[place] + widths[place] / 2:.1f}" y="{top + 20}">{escape(shown(token))}</text></g>'
            )
    left = float(LEFT)
    for kind in kinds:
        parts.append(
            f'<g class="{kind}"><rect x="{left:.1f}" y="{height - 21}" width="14" height="14"/></g>'
            f'<text class="key" x="{left + 20:.1f}" y="{height - 10}">{KINDS[kind]}</text>'
        )
        left += keys[kind]
    return "\n".join([*parts, "</svg>\n"])


def shown(piece: str) -> str:
    """A token as people read it."""
    return {"</s>": "■"}.get(piece, piece.replace("▁", "").strip() or "␣")


def main() -> None:
    """Read a trace, write a picture."""
    if len(sys.argv) != 3:
        sys.exit("at_work: expected a file that `longstride translate --trace` wrote, and the picture's.")
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    Path(sys.argv[2]).write_text(drawing(json.loads(lines[0])["trace"]), encoding="utf-8")


if __name__ == "__main__":
    main()
