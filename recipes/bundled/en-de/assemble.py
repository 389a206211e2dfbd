"""Put the trained models of the family into one folder: assemble.py WORK OUT [--records FILE] [--default DECODER].

Of the five runs under WORK the folder takes what is their own: the verifier whole, the heads, the drafter with its
shortlist, two decoders and the candidate tables. The encoder and the embeddings are the verifier's in all of them and
written once; a run whose are not is refused, and so is a folder that would be too large for the repository. Beside
config.json, weights (int8) and the tokenizer it holds README.md, a card filled from the records of this very folder,
and examples.tsv, which `longstride demo` translates.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where this is imported, not run

import card

from longstride import model_folder
from longstride.contract import ModelFolderError, WorkError
from longstride.contract.options import parse
from longstride.model_folder import DecoderConfig, ModelFolder, Part, resolve
from longstride.registry import PARTS

HERE = Path(__file__).resolve().parent
NAME = "bundled-en-de"
MOST = 64_000_000
"""bytes of the folder, all files together"""
WORK = "runs/bundled-en-de"
"""what the recipes call the folder that everything is made in; so does the folder's provenance"""
ENCODER = ("encoder.", "target_embedding.")
"""weights that all share"""


@dataclass(frozen=True)
class Place:
    """Where a part comes from."""

    run: str
    part: str
    reuses: str | None = None


LAYOUT = {
    "model": Place("verifier", "model"),
    "heads": Place("heads", "heads"),
    "drafter": Place("drafter", "drafter", reuses="model"),
    "shortlist": Place("drafter", "shortlist"),
    "interleaved": Place("interleaved", "model", reuses="model"),
    "interleaving": Place("interleaved", "interleaving"),
    "scorer": Place("lattice", "model", reuses="model"),
    "tables": Place("lattice", "tables"),
}
RUNS = tuple(dict.fromkeys(place.run for place in LAYOUT.values()))
DECODERS = {
    "greedy": DecoderConfig({"model": "model"}),
    "beam": DecoderConfig({"model": "model"}),
    "blockwise": DecoderConfig({"model": "model", "heads": "heads"}),
    "draft-verify": DecoderConfig({"model": "model", "drafter": "drafter", "shortlist": "shortlist"}, {"tree": 8}),
    "draft": DecoderConfig({"model": "model", "drafter": "drafter"}),
    "interleaved": DecoderConfig({"model": "interleaved", "interleaving": "interleaving"}),
    "lattice": DecoderConfig({"model": "scorer", "tables": "tables"}, {"kept": 32, "normalise": "candidates"}),
}


def assemble(work: Path, out: Path, records: Path, default: str = "greedy", most: int = MOST) -> dict[str, int]:
    """Write the folder, whole or not at all; the size of each file."""
    folders = {run: ModelFolder(resolve(str(work / run))) for run in RUNS}
    _check_base(folders)
    parts = {name: _part(folders[place.run], place) for name, place in LAYOUT.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        made = building / out.name
        tokenizer = folders["verifier"].tokenizers()[0]
        model_folder.write(
            made,
            parts,
            DECODERS,
            default,
            tokenizer,
            provenance=_provenance(folders),
            dtype=torch.int8,
            sentences=True,
        )
        _check_shared(made)
        shutil.copyfile(HERE / "examples.tsv", made / "examples.tsv")
        card.write(made, records)
        sizes = {path.name: path.stat().st_size for path in sorted(made.iterdir())}
        if sum(sizes.values()) > most:
            told = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in sizes.items())
            raise WorkError(
                f"{out}: expected at most {most / 1e6:g} MB, found {sum(sizes.values()) / 1e6:.1f} ({told})."
            )
        if out.exists():
            os.replace(out, building / "old")
        os.replace(made, out)
    finally:
        shutil.rmtree(building)
    return sizes


def _part(folder: ModelFolder, place: Place) -> Part:
    config = folder.parts[place.part]
    kind = PARTS[config.kind]
    options = parse(kind.options, config.options, place.run)
    module = folder.load(place.part, lambda: kind.build(options))
    return Part(config.kind, options, module, place.reuses)


def _check_base(folders: Mapping[str, ModelFolder]) -> None:
    """Heads and drafter were made for this very verifier, and all have its tokenizer."""
    verifier = folders["verifier"]
    for run, folder in folders.items():
        if folder.config.tokenizer_sha256 != verifier.config.tokenizer_sha256:
            raise ModelFolderError(f"{folder.path}: expected the tokenizer of {verifier.path}, found another.")
        # Not by hash: averaging makes 0 of -0.
        if run in ("heads", "drafter") and not _equal(
            _part(verifier, Place(run, "model")), _part(folder, Place(run, "model"))
        ):
            raise ModelFolderError(f"{folder.path}: expected it to build on {verifier.path}, found another base.")


def _equal(one: Part, other: Part) -> bool:
    states = one.module.state_dict(), other.module.state_dict()
    return one.options == other.options and all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def _check_shared(path: Path) -> None:
    """Nothing of the encoder is written twice."""
    from safetensors import safe_open

    folder = ModelFolder(path)
    for name, part in folder.parts.items():
        if part.reuses is None:
            continue
        with safe_open(path / part.weights, framework="pt") as file:
            own = [key for key in file.keys() if key.startswith(ENCODER)]  # noqa: SIM118
        if own:
            raise ModelFolderError(
                f"{path}, parts.{name}: expected the encoder and embeddings of {part.reuses!r}, frozen in training, "
                f"found others ({own[0]})."
            )


def _provenance(folders: Mapping[str, ModelFolder]) -> dict[str, Any]:
    """How each run came about; the verifier's, which others build on, is told once."""
    told: dict[str, Any] = {}
    data = folders["verifier"].config.provenance.get("recipe", {}).get("data", {})
    # Runs may come from other machines; what they were made of lies where the tokenizer or the binarized corpus does.
    places = {str(Path(data.get(name, "")).parent) for name in ("tokenizer", "cache")}
    absolute = sorted(filter(os.path.isabs, places), key=len, reverse=True)
    for run, folder in folders.items():
        made = folder.config.provenance
        told[run] = _placed({name: value for name, value in made.items() if name != "base"}, absolute)
        if run == "lattice":
            told["tables"] = _placed(made.get("base", {}).get("tables", {}), absolute)
    data = told["verifier"].get("recipe", {}).get("data", {})
    return {"recipe": {"name": NAME, "data": data}, "runs": told}


def _placed(value: Any, places: Sequence[str]) -> Any:
    """The same with files named as the recipes name them, wherever on a machine the work was done."""
    if isinstance(value, Mapping):
        return {key: _placed(one, places) for key, one in value.items()}
    if isinstance(value, list):
        return [_placed(one, places) for one in value]
    if isinstance(value, str):
        return next((WORK + value[len(place) :] for place in places if value.startswith(place)), value)
    return value


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--records", type=Path, help="where the card's scores come from (default: WORK/records.jsonl)")
    parser.add_argument("--default", default="greedy", choices=list(DECODERS), help="the folder's default decoder")
    asked = parser.parse_args()
    try:
        sizes = assemble(asked.work, asked.out, asked.records or asked.work / "records.jsonl", asked.default)
    except (ModelFolderError, WorkError) as error:
        sys.exit(f"error: {error}")
    for name, size in sizes.items():
        print(f"{size / 1e6:8.2f} MB  {name}")
    print(f"{sum(sizes.values()) / 1e6:8.2f} MB  {asked.out}", flush=True)


if __name__ == "__main__":
    main()
