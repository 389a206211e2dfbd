"""A family whose verifier was trained on, for its other models to begin from: graft.py FAMILY VERIFIER OUT.

OUT/family    FAMILY with the verifier of a run in place of its own: what others read of it, encoder and embeddings, is
              the new one's in all of them. They were not trained for it, and are to be: a `warm_start`, no model to use
OUT/tables    its candidate tables by themselves, which a lattice is trained with

Both are written anew, and nothing is trained here.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from longstride import model_folder
from longstride.contract import ModelFolderError
from longstride.contract.options import parse
from longstride.model_folder import DecoderConfig, ModelFolder, Part, resolve
from longstride.nn.weights import read_weights
from longstride.registry import PARTS, part_builder

VERIFIER, TABLES = "model", "tables"


def graft(family: ModelFolder, verifier: ModelFolder, out: Path) -> None:
    """Write both folders."""
    if family.config.tokenizer_sha256 != verifier.config.tokenizer_sha256:
        raise ModelFolderError(f"{verifier.path}: expected the tokenizer of {family.path}, found another.")
    parts = {name: _part(family, name) for name in family.parts}
    new = _part(verifier, VERIFIER)
    if new.options != parts[VERIFIER].options:
        raise ModelFolderError(f"{verifier.path}: expected a verifier shaped as that of {family.path}, found another.")
    weights = new.module.state_dict()
    for name, part in parts.items():
        if family.parts[name].reuses == VERIFIER:
            own = read_weights(family.path / family.parts[name].weights)
            lent = {key: weights[key] for key in part.module.state_dict() if key not in own}
            part.module.load_state_dict(lent, strict=False)
    told = family.config.provenance.get("runs", {}).get(TABLES, {})
    tokenizer = family.tokenizers()[0]
    model_folder.write(
        out / "family", {**parts, VERIFIER: new}, family.decoders, family.config.default_decoder, tokenizer
    )
    counts = {"counts": DecoderConfig({TABLES: TABLES})}
    model_folder.write(out / TABLES, {TABLES: parts[TABLES]}, counts, "counts", tokenizer, provenance={TABLES: told})


def _part(folder: ModelFolder, name: str) -> Part:
    config = folder.parts[name]
    options = parse(PARTS[config.kind].options, config.options, name)
    return Part(config.kind, options, folder.load(name, part_builder(folder, name)), config.reuses)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("family", "verifier", "out"):
        parser.add_argument(name, type=Path)
    asked = parser.parse_args()
    try:
        graft(*(ModelFolder(resolve(str(path))) for path in (asked.family, asked.verifier)), asked.out)
    except ModelFolderError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
