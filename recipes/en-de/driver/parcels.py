"""Pack what is finished into pieces that can be copied off while all else goes on.

    parcels.py WORK NAME [--like NAME ...]     the model of a run, its recipe and its metrics
    parcels.py WORK NAME --files FILE ...      files of WORK

Makes WORK/parcels/NAME.tar.00, .01, ..., of 15 MB at most, and names them in WORK/parcels/ready.txt, with their sizes
and hashes, once all are whole. Unpack with `cat NAME.tar.* | tar x`, in another run's WORK to go on from there. A file
that equals one of a run named by --like is a link to that one, whose parcel must be unpacked first in the same place: a
drafter need not bring its verifier along.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `driver`, where this is run as a script

from driver.locks import nobody_writes
from longstride.text.files import file_sha256, written_whole

FOLDER, READY = "parcels", "ready.txt"
MOST = 15_000_000
"""bytes of a piece"""
KEPT = ("recipe.yaml", "metrics.jsonl")
"""of a run's folder, beside the model"""


class Pieces:
    """A file to write to that is many files, none larger than `most`."""

    def __init__(self, stem: Path, most: int) -> None:
        self._stem, self._most = stem, most
        self.paths: list[Path] = []
        self._file: IO[bytes] | None = None
        self._room = 0

    def write(self, data: bytes) -> int:
        """Write all of it, to as many files as it takes."""
        rest = memoryview(data)
        while rest:
            if not self._room:
                self.close()
                self.paths.append(Path(f"{self._stem}.{len(self.paths):02d}"))
                self._file, self._room = self.paths[-1].open("wb"), self._most
            assert self._file is not None
            wrote = self._file.write(rest[: self._room])
            rest, self._room = rest[wrote:], self._room - wrote
        return len(data)

    def close(self) -> None:
        """End the last file."""
        if self._file is not None:
            self._file.close()


def pack(work: Path, name: str, files: Sequence[Path], like: Sequence[str] = (), most: int = MOST) -> list[Path]:
    """Write the pieces and name them; files are told by their place in the work folder."""
    folder = work / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    known = {file_sha256(path): path for other in like for path in model_files(work, other)}
    pieces = Pieces(folder / f".{name}.tar", most)
    with tarfile.open(fileobj=pieces, mode="w|") as tar:
        for path in files:
            told = tar.gettarinfo(path, arcname=str(path.relative_to(work)))
            same = known.get(file_sha256(path)) if like else None
            if same is not None:
                told.type, told.linkname, told.size = tarfile.LNKTYPE, str(same.relative_to(work)), 0
                tar.addfile(told)
            else:
                with path.open("rb") as data:
                    tar.addfile(told, data)
    pieces.close()
    for old in folder.glob(f"{name}.tar.*"):
        old.unlink()
    made = [path.rename(folder / path.name.removeprefix(".")) for path in pieces.paths]
    _announce(folder, name, made)
    return made


def model_files(work: Path, name: str) -> list[Path]:
    """What a finished run is known by: its model first."""
    run = work / name
    found = sorted(path for path in (run / "model").iterdir() if path.is_file())
    return found + [run / one for one in KEPT if (run / one).is_file()]


def _announce(folder: Path, name: str, made: Sequence[Path]) -> None:
    """One line for each piece, in the order in which parcels were made; an older parcel of that name is forgotten."""
    ready = folder / READY
    told = [f"{path.name} {path.stat().st_size} {file_sha256(path)}" for path in made]
    with nobody_writes(folder):
        lines = ready.read_text(encoding="utf-8").splitlines() if ready.is_file() else []
        kept = [line for line in lines if not line.startswith(f"{name}.tar.")]
        with written_whole(ready) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in [*kept, *told]), encoding="utf-8")


def main() -> None:
    """Pack one."""
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("work", type=Path)
    told.add_argument("name")
    told.add_argument("--like", nargs="*", default=[])
    told.add_argument("--files", type=Path, nargs="*")
    asked = told.parse_args()
    if asked.files is None:
        files = model_files(asked.work, asked.name)
    else:
        files = sorted(path for top in asked.files for path in ([top] if top.is_file() else top.rglob("*")))
        files = [path for path in files if path.is_file()]
    like = [one for one in asked.like if (asked.work / one / "model").is_dir()]
    for path in pack(asked.work, asked.name, files, like):
        print(path, flush=True)


if __name__ == "__main__":
    main()
