"""Sentence pairs as ids, in memory or mapped from one file that says what it was made from. Knows no batch.

The file is a safetensors file: int64 offsets and line numbers, and the ids of both sides (uint16 where the vocabulary
fits, else uint32), with a manifest in its metadata that names the text and the tokenizer, so that a stale file is
refused. The end-of-sentence id IS stored at the end of every sentence and lengths count it: what is read here can be
put into a batch as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from longstride.contract import DEFAULT_IDS, InputError, OptionError, SpecialIds
from longstride.text.corpus import read_parallel
from longstride.text.files import LARGEST, file_sha256, parse_json, written_whole
from longstride.text.filtering import FilterReport, LengthFilter
from longstride.text.tokenizer import Tokenizer

Ids = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

VERSION = 1
_NOTE = "longstride"
_CHUNK = 20_000
"""Pairs tokenized at a time: enough to keep every core busy, little enough to stay in a hundred megabytes."""


@dataclass(frozen=True)
class Side:
    """The sentences of one language, one after the other."""

    ids: Ids
    """[tokens]"""
    offsets: npt.NDArray[np.int64]
    """[sentences + 1]: sentence i is ids[offsets[i]:offsets[i + 1]]"""
    special: SpecialIds = DEFAULT_IDS

    @staticmethod
    def of(sentences: Sequence[Sequence[int]], special: SpecialIds = DEFAULT_IDS) -> Side:
        """Lay sentences end to end, the end-of-sentence id appended to those that lack it."""
        eos = special.eos
        closed = [row if len(row) and row[-1] == eos else [*row, eos] for row in sentences]
        lengths = np.fromiter((len(row) for row in closed), np.int64, len(closed))
        ids = np.fromiter(chain.from_iterable(closed), np.uint32, int(lengths.sum()))
        return Side(ids, offsets_of(lengths), special)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """[sentences], the end-of-sentence id counted."""
        return np.diff(self.offsets)

    def sentence(self, index: int) -> Ids:
        """[length] one sentence, ending in EOS."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Chosen sentences as a rectangle [rows, longest], padded on the right, and their lengths [rows]."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        columns = np.arange(int(lengths.max(initial=0)))
        inside = columns < lengths[:, None]
        # Where a row has ended its first id is read instead, so that no index leaves the array.
        cells = starts[:, None] + np.where(inside, columns, 0)
        return np.where(inside, self.ids[cells], self.special.pad).astype(np.int64, copy=False), lengths

    def take(self, rows: npt.NDArray[np.int64], longest: int = 0) -> Side:
        """Chosen sentences, in the order given, cut to `longest` ids (0: whole), of which the last is EOS still."""
        starts = self.offsets[rows]
        whole = self.offsets[rows + 1] - starts
        lengths = np.minimum(whole, longest) if longest else whole
        offsets = offsets_of(lengths)
        cells = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        ids = self.ids[cells]
        ids[offsets[1:][lengths < whole] - 1] = self.special.eos
        return Side(ids, offsets, self.special)


@dataclass(frozen=True)
class Manifest:
    """What a binarized corpus was made from."""

    version: int
    source_file: str
    target_file: str
    source_sha256: str
    target_sha256: str
    source_tokenizer_sha256: str
    target_tokenizer_sha256: str
    pairs: int
    source_tokens: int
    target_tokens: int
    filter: LengthFilter
    report: FilterReport

    def as_json(self) -> str:
        """For the metadata of the file."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_dict(found: dict[str, Any]) -> Manifest:
        """Read what `as_json` wrote; anything else raises KeyError, TypeError or OptionError."""
        return Manifest(
            **found | {"filter": LengthFilter(**found["filter"]), "report": FilterReport(**found["report"])}
        )


class BinarizedCorpus:
    """Pairs of sentences as ids, every one ending in EOS."""

    def __init__(
        self,
        source: Side,
        target: Side,
        lines: npt.NDArray[np.int64] | None = None,
        manifest: Manifest | None = None,
    ) -> None:
        """Two sides of equally many sentences; `lines` [pairs]: where each pair stood in its files, from 0."""
        if len(source.offsets) != len(target.offsets):
            raise InputError(
                f"Expected as many target as source sentences, found {len(source.offsets) - 1} source and "
                f"{len(target.offsets) - 1} target sentences."
            )
        self.source = source
        self.target = target
        self.lines = np.arange(len(self), dtype=np.int64) if lines is None else lines
        self.manifest = manifest

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    @property
    def report(self) -> FilterReport:
        """What the length filter kept when the corpus was made."""
        return self.manifest.report if self.manifest else FilterReport(len(self), len(self))

    def take(self, indices: npt.NDArray[np.int64]) -> BinarizedCorpus:
        """The chosen pairs, in memory, in the order given; it has no manifest, being no longer what a file holds."""
        return BinarizedCorpus(self.source.take(indices), self.target.take(indices), self.lines[indices])

    @staticmethod
    def from_pairs(
        pairs: Iterable[tuple[Sequence[int], Sequence[int]]], special: SpecialIds = DEFAULT_IDS
    ) -> BinarizedCorpus:
        """A corpus in memory; the end-of-sentence id is appended to sentences that do not end in it."""
        listed = list(pairs)
        source, target = (Side.of([pair[side] for pair in listed], special) for side in (0, 1))
        return BinarizedCorpus(source, target)

    @staticmethod
    def load(
        path: str | os.PathLike[str],
        expected: str | None = None,
        *,
        special: SpecialIds = DEFAULT_IDS,
    ) -> BinarizedCorpus:
        """Open a file that `binarize` made, mapped into memory; given a tokenizer's hash, one of another is refused."""
        manifest, arrays = _open(Path(path))
        for side, found in (
            ("source", manifest.source_tokenizer_sha256),
            ("target", manifest.target_tokenizer_sha256),
        ):
            if expected is not None and expected != found:
                raise InputError(
                    f"{path} is stale: expected it to be made with the {side} tokenizer {expected[:12]}, found "
                    f"{found[:12]}; binarize the text again."
                )
        source, target = (
            Side(arrays[f"{side}_ids"], arrays[f"{side}_offsets"], special) for side in ("source", "target")
        )
        return BinarizedCorpus(source, target, arrays["lines"], manifest)

    def check_ids(self, vocabulary: int, path: str | os.PathLike[str]) -> None:
        """Refuse a corpus, read from `path`, with ids that a vocabulary of this size does not have."""
        for side in (self.source, self.target):
            if len(side.ids) and int(side.ids.max()) >= vocabulary:
                raise InputError(f"{path} is damaged: expected ids below {vocabulary}, found {int(side.ids.max())}.")

    def check_files(self, source_file: str | os.PathLike[str], target_file: str | os.PathLike[str]) -> None:
        """Refuse a corpus that was made from other text than these files now hold."""
        if self.manifest is None:
            return
        for path, expected in ((source_file, self.manifest.source_sha256), (target_file, self.manifest.target_sha256)):
            if not Path(path).is_file():
                raise InputError(f"{path}: expected a text file, found none.")
            if (found := file_sha256(path)) != expected:
                raise InputError(
                    f"The binarized corpus is stale: expected {path} with SHA-256 {expected[:12]}, found "
                    f"{found[:12]}; binarize the text again."
                )


def binarize(
    source_file: str | os.PathLike[str],
    target_file: str | os.PathLike[str],
    tokenizer: Tokenizer,
    out_path: str | os.PathLike[str],
    filter: LengthFilter | None = None,
    *,
    target_tokenizer: Tokenizer | None = None,
    progress: Callable[[int], None] | None = None,
) -> BinarizedCorpus:
    """Tokenize two text files line by line, filter, write one file (whole or not at all) and open it.

    Memory stays bounded: ids go to temporary files chunk by chunk. `progress` is told the number of pairs read so far.
    """
    filter = filter or LengthFilter()
    tokenizers = (tokenizer, target_tokenizer or tokenizer)
    dtypes = [np.uint16 if each.size <= 1 << 16 else np.uint32 for each in tokenizers]
    lengths: tuple[list[Any], list[Any]] = ([], [])
    lines: list[npt.NDArray[np.int64]] = []
    report = FilterReport()
    pairs = read_parallel(source_file, target_file)
    with (
        written_whole(out_path) as temporary,
        tempfile.TemporaryFile(dir=temporary.parent) as source_ids,
        tempfile.TemporaryFile(dir=temporary.parent) as target_ids,
    ):
        while chunk := list(islice(pairs, _CHUNK)):
            sides = [
                Side.of(each.encode_for_batches(list(texts)), each.special)
                for each, texts in zip(tokenizers, zip(*chunk, strict=True), strict=True)
            ]
            kept, found = filter.apply(sides[0].lengths, sides[1].lengths)
            lines.append(kept + report.seen)
            report += found
            spills = zip(sides, dtypes, (source_ids, target_ids), lengths, (filter.cut_source, 0), strict=True)
            for side, dtype, spill, known, longest in spills:
                chosen = side.take(kept, longest)
                spill.write(chosen.ids.astype(dtype).tobytes())
                known.append(chosen.lengths)
            if progress is not None:
                progress(report.seen)
        if report.kept == 0:
            raise InputError(
                f"{source_file} and {target_file}: expected at least one pair to keep, found none: {report.sentence}."
            )
        offsets = [offsets_of(np.concatenate(known)) for known in lengths]
        manifest = Manifest(
            VERSION,
            Path(source_file).name,
            Path(target_file).name,
            file_sha256(source_file),
            file_sha256(target_file),
            tokenizers[0].sha256,
            tokenizers[1].sha256,
            report.kept,
            int(offsets[0][-1]),
            int(offsets[1][-1]),
            filter,
            report,
        )
        write_arrays(
            temporary,
            {_NOTE: manifest.as_json()},
            {
                "source_offsets": (np.int64, len(offsets[0]), offsets[0]),
                "target_offsets": (np.int64, len(offsets[1]), offsets[1]),
                "lines": (np.int64, report.kept, np.concatenate(lines)),
                "source_ids": (dtypes[0], manifest.source_tokens, source_ids),
                "target_ids": (dtypes[1], manifest.target_tokens, target_ids),
            },
        )
    return BinarizedCorpus.load(out_path, special=tokenizer.special)


def _open(path: Path) -> tuple[Manifest, dict[str, Any]]:
    """The manifest and the arrays, after checking that the file is whole, of our making and of this version."""
    if not path.is_file():
        raise InputError(f"{path}: expected a binarized corpus, found no file.")
    try:
        note, arrays = read_arrays(path)
        written = parse_json(note[_NOTE].encode())
        version = written["version"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: expected a binarized corpus, found something else or a damaged one: {error}."
        ) from error
    if version != VERSION:
        raise InputError(
            f"{path} is stale: expected format version {VERSION}, found {version}; binarize the text again."
        )
    try:
        manifest = Manifest.from_dict(written)
        expected = {
            "source_ids": manifest.source_tokens,
            "target_ids": manifest.target_tokens,
            "source_offsets": manifest.pairs + 1,
            "target_offsets": manifest.pairs + 1,
            "lines": manifest.pairs,
        }
    except (KeyError, TypeError, OptionError) as error:
        raise InputError(f"{path}: expected a manifest of version {VERSION}, found another: {error}.") from error
    found = {name: len(array) for name, array in arrays.items()}
    ends = [int(arrays[name][-1]) for name in ("source_offsets", "target_offsets") if found.get(name)]
    if found != expected or ends != [manifest.source_tokens, manifest.target_tokens]:
        raise InputError(f"{path} is damaged: expected arrays of {expected}, found {found} that end at {ends}.")
    for name in ("source_offsets", "target_offsets"):
        if arrays[name][0] != 0 or (arrays[name][1:] <= arrays[name][:-1]).any():
            raise InputError(f"{path} is damaged: expected {name} that rise from 0, found others.")
    return manifest, arrays


def offsets_of(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where sentences of these lengths begin when laid end to end, and where the last one ends: [sentences + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


_DTYPES: dict[str, type[np.generic]] = {"I64": np.int64, "U32": np.uint32, "U16": np.uint16}


def write_arrays(
    path: Path,
    note: Mapping[str, str],
    arrays: Mapping[str, tuple[type[np.generic], int, npt.NDArray[Any] | IO[bytes]]],
) -> None:
    """Write arrays, each given as its type, its size and its values or an open file of their bytes."""
    # Wide numbers come first, which keeps every array aligned.
    ordered = sorted(arrays.items(), key=lambda entry: -np.dtype(entry[1][0]).itemsize)
    names = {dtype: name for name, dtype in _DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": dict(note)}
    end = 0
    for name, (dtype, size, _) in ordered:
        start, end = end, end + size * np.dtype(dtype).itemsize
        header[name] = {"dtype": names[dtype], "shape": [size], "data_offsets": [start, end]}
    encoded = json.dumps(header).encode("utf-8")
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for _, (dtype, _, values) in ordered:
            if isinstance(values, np.ndarray):
                file.write(values.astype(dtype, copy=False).tobytes())
            else:
                values.seek(0)
                shutil.copyfileobj(values, file, 1 << 20)


def read_arrays(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """The note and the arrays, mapped into memory; a file that is cut or something else raises ValueError."""
    found = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        size = int.from_bytes(start, "little")
        if len(start) < 8 or size > found - 8:
            raise ValueError(f"its header is cut short or none, in {found} bytes")
        if size > LARGEST:
            raise ValueError(f"its header has {size:,} bytes")
        header = parse_json(file.read(size))
    try:
        note: dict[str, str] = header.pop("__metadata__")
        places: dict[str, tuple[type[np.generic], int, int]] = {}
        for name, entry in header.items():
            start, end = entry["data_offsets"]
            places[name] = (_DTYPES[entry["dtype"]], int(start), int(end))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:  # the last of infinity
        raise ValueError(f"its header lacks {error}") from error
    if any(not 0 <= start <= end for _, start, end in places.values()):
        raise ValueError("its header has arrays that end before they begin")
    expected = 8 + size + max((end for _, _, end in places.values()), default=0)
    if found != expected:
        raise ValueError(f"it should have {expected} bytes and has {found}")
    raw = np.asarray(np.memmap(path, np.uint8, "r"))[8 + size :]
    return note, {name: raw[start:end].view(dtype) for name, (dtype, start, end) in places.items()}
