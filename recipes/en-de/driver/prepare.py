"""Make the tokenizer and the binarized corpora, so that trainings that run side by side find them ready.

    prepare.py TOKENIZER [--take FILE ...] [--vocabulary N] [--corpus FOLDER SOURCE TARGET VALID_SOURCE VALID_TARGET]

The tokenizer is the first of the files to take that is there, else made of the first corpus. What is there already and
was made of the same text stays.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from longstride.contract import InputError
from longstride.text.binarized import BinarizedCorpus, binarize
from longstride.text.corpus import read_lines
from longstride.text.filtering import LengthFilter
from longstride.text.tokenizer import Tokenizer, load_tokenizer, train_sentencepiece

LEARNT, HELD_OUT = LengthFilter(max_tokens=128), LengthFilter(max_tokens=0)
"""as in all recipes of the task"""


def tokenizer(path: Path, take: list[Path], text: list[str], vocabulary: int) -> Tokenizer:
    """The one that is there, a copy of one that was made earlier, or a new one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        found = [one for one in take if one.is_file()]
        if found:
            print(f"tokenizer: {found[0]}", flush=True)
            shutil.copyfile(found[0], path)
        else:
            print(f"tokenizer: {vocabulary:,} pieces of {' and '.join(text)}", flush=True)
            lines = (line for file in text for line in read_lines(file))
            train_sentencepiece(lines, vocabulary, path, "bpe", lines=True)
    return load_tokenizer(path)


def corpus(path: Path, source: str, target: str, made_with: Tokenizer, kept: LengthFilter, like: Path | None) -> None:
    """Binarize two files, unless that is done; `like` may be the same corpus in another folder."""
    if _current(path, source, target, made_with, kept):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if like is not None and _current(like, source, target, made_with, kept):
        path.unlink(missing_ok=True)
        os.link(like, path)
        return
    print(f"{path}: {source}, {target}", flush=True)
    print(binarize(source, target, made_with, path, kept).report.sentence, flush=True)


def _current(path: Path, source: str, target: str, made_with: Tokenizer, kept: LengthFilter) -> bool:
    try:
        found = BinarizedCorpus.load(path, made_with.sha256)
        found.check_files(source, target)
    except InputError:
        return False
    return found.manifest is not None and found.manifest.filter == kept


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--take", type=Path, nargs="*", default=[])
    parser.add_argument("--vocabulary", type=int, default=16000)
    parser.add_argument("--corpus", nargs=5, action="append", default=[])
    asked = parser.parse_args()
    made_with = tokenizer(asked.tokenizer, asked.take, asked.corpus[0][1:3] if asked.corpus else [], asked.vocabulary)
    before: Path | None = None
    for folder, source, target, valid_source, valid_target in asked.corpus:
        here = Path(folder)
        # Training sets last: they are what trainings wait for.
        corpus(here / "valid.ids", valid_source, valid_target, made_with, HELD_OUT, before and before / "valid.ids")
        corpus(here / "train.ids", source, target, made_with, LEARNT, before and before / "train.ids")
        before = here


if __name__ == "__main__":
    main()
