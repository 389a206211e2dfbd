"""Mix the corpus of bundled models: a teacher's translations of debates, people's of everyday sentences, copies.

    mix.py OUT --distilled FOLDER [FOLDER ...] --debates FOLDER --everyday FOLDER --examples FILE [--copies N]
        [--tokenizer FILE --pieces N] [--plain]

OUT/train.{en,de}.xz    every pair of --distilled (train.src, train.tgt), then one per English sentence of --everyday,
                        then N that teach to copy what means the same in any language (copies.py), half of each kind;
                        with --plain train.{en,de}: to compress a million pairs takes minutes
OUT/valid.{en,de}       as many of each, from the validation sets of --debates and --everyday
OUT/mix.json            what went in, by hash, and how many pairs of each; written last
FILE                    a joint SentencePiece model, made of all but the copies, whose rare letters are left to bytes;
                        every digit is a piece, so that numbers are copied, whatever they are

Everyday sentences come with several German variants, formal and familiar ones above all. A model that writes all words
at once cannot choose between them, so that one is kept: the shortest, which mostly is the familiar one. A pair whose
English is a sentence of the examples is left out: they are to show what the models make of text they never saw.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where this is imported, not run

import copies as copying

from longstride.text.corpus import read_lines, read_parallel, write_lines
from longstride.text.files import file_sha256, written_whole
from longstride.text.tokenizer import train_sentencepiece

ENDINGS = ("", ".xz", ".gz")
HELD_OUT = 1000
"""pairs of each kind to validate on"""

Pair = tuple[str, str]


def text(folder: Path, name: str) -> Path:
    """A text file, however it is compressed."""
    names = [folder / f"{name}{ending}" for ending in ENDINGS]
    return next((path for path in names if path.is_file()), names[0])


def key(sentence: str) -> str:
    """What two writings of one sentence have in common: letters and digits, in any case."""
    return re.sub(r"\W+", " ", sentence).strip().casefold()


def one_variant(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """For every source its shortest target, the first in the alphabet among equals; in the order of first sight."""
    kept: dict[str, str] = {}
    for source, target in pairs:
        other = kept.get(source)
        if other is None or (len(target), target) < (len(other), other):
            kept[source] = target
    yield from kept.items()


def mix(
    out: Path,
    distilled: Sequence[Path],
    debates: Path,
    everyday: Path,
    examples: Path,
    copies: int = 0,
    tokenizer: Path | None = None,
    pieces: int = 0,
    plain: bool = False,
) -> dict[str, int]:
    """Write everything; how many pairs there are of each kind."""
    shown = {key(line.partition("\t")[0]) for line in read_lines(examples)}
    files = {
        "everyday": (text(everyday, "train.en"), text(everyday, "train.de")),
        "debates valid": (text(debates, "valid.en"), text(debates, "valid.de")),
        "everyday valid": (text(everyday, "valid.en"), text(everyday, "valid.de")),
    }
    folders = [(folder / "train.src", folder / "train.tgt") for folder in distilled]
    taught = {
        "distilled": [pair for folder in folders for pair in read_parallel(*folder)],
        "everyday": list(one_variant(read_parallel(*files["everyday"]))),
    }
    taught = {name: [pair for pair in pairs if key(pair[0]) not in shown] for name, pairs in taught.items()}
    if tokenizer is not None:
        lines = (pair[place] for place in (0, 1) for pairs in taught.values() for pair in pairs)
        train_sentencepiece(lines, pieces, tokenizer, split_digits=True)
    taught["copies"] = list(
        chain.from_iterable(copying.copies(pairs, copies // len(taught)) for pairs in taught.values())
    )
    held_out = [pair for name in list(files)[1:] for pair in islice(read_parallel(*files[name]), HELD_OUT)]
    out.mkdir(parents=True, exist_ok=True)
    ending = "" if plain else ".xz"
    for place, side in enumerate(("en", "de")):
        write_lines(out / f"valid.{side}", (pair[place] for pair in held_out))
        write_lines(out / f"train.{side}{ending}", (pair[place] for pairs in taught.values() for pair in pairs))
    counts = {name: len(pairs) for name, pairs in taught.items()}
    read = {"distilled": [path for folder in folders for path in folder], **files}
    hashes = {name: [file_sha256(path) for path in paths] for name, paths in read.items()}
    with written_whole(out / "mix.json") as temporary:
        told = {"pairs": counts, "valid": len(held_out), "sha256": hashes}
        temporary.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return counts


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--distilled", type=Path, nargs="+", required=True)
    for name in ("debates", "everyday", "examples"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--copies", type=int, default=0)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--pieces", type=int, default=16_000)
    asked = parser.parse_args()
    counts = mix(**vars(asked))
    print(", ".join(f"{count:,} pairs of {name}" for name, count in counts.items()), flush=True)


if __name__ == "__main__":
    main()
