"""Make the tokenizer and the binarized corpus that a recipe names: prepare.py RECIPE [--set NAME=VALUE ...].

Training does so too where they are missing; before it, it needs no GPU, and trainings that begin side by side find them
ready. What is there already and was made of the same text stays.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from longstride.cli.train import read_recipe
from longstride.contract.options import assignments
from longstride.recipe_data import corpus_of, tokenizer_of
from longstride.training.metrics import Silent


class _Printed(Silent):
    def message(self, text: str) -> None:
        """Said."""
        print(text, flush=True)


def main() -> None:
    """Read the command line and make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    asked = parser.parse_args()
    data = read_recipe(asked.recipe, dict(assignments(asked.set))).data
    folder = Path(data.cache)
    tokenizer = tokenizer_of(data, folder, _Printed())
    corpus_of(data, "valid", tokenizer, folder, _Printed(), leads=True)
    corpus_of(data, "train", tokenizer, folder, _Printed(), leads=True)


if __name__ == "__main__":
    main()
