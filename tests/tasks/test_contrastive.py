"""Contrastive pairs: the format, and what counts as right, by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longstride.contract import InputError
from longstride.tasks.contrastive import (
    Cell,
    Entry,
    Error,
    accuracy,
    by_distance,
    by_type,
    contrast,
    pairs_of,
    read_contrastive,
)

FOUND: list[dict[str, Any]] = [
    {
        "source": "The cats on the mat sleep.",
        "reference": "Die Katzen auf der Matte schlafen.",
        "origin": "made.1",
        "errors": [
            {"type": "agreement", "contrastive": "Die Katzen auf der Matte schläft.", "distance": 4, "frequency": 20},
            {"type": "polarity", "contrastive": "Die Katzen auf der Matte schlafen nicht."},
        ],
    },
    {"source": "Yes.", "reference": "Ja.", "errors": []},
    {
        "source": "He runs.",
        "reference": "Er rennt.",
        "errors": [
            {"type": "agreement", "contrastive": "Er rennen.", "distance": "0"},
            {"contrastive": "Er renntet.", "distance": 16},
            {"type": "agreement", "contrastive": "Er rennst.", "distance": 40},
        ],
    },
]
READ = [
    Entry(
        "The cats on the mat sleep.",
        "Die Katzen auf der Matte schlafen.",
        (
            Error("Die Katzen auf der Matte schläft.", "agreement", 4),
            Error("Die Katzen auf der Matte schlafen nicht.", "polarity", None),
        ),
    ),
    Entry("Yes.", "Ja.", ()),
    Entry(
        "He runs.",
        "Er rennt.",
        (Error("Er rennen.", "agreement", 0), Error("Er renntet.", "other", 16), Error("Er rennst.", "agreement", 40)),
    ),
]


def test_files_plain_and_compressed(tmp_path: Path) -> None:
    (tmp_path / "pairs.json").write_text(json.dumps(FOUND, indent=1))
    assert read_contrastive(tmp_path / "pairs.json") == READ
    (tmp_path / "pairs.json.gz").write_bytes(gzip.compress(json.dumps(FOUND).encode()))
    assert read_contrastive(tmp_path / "pairs.json.gz") == READ


def test_the_higher_log_probability_is_right_and_equal_is_wrong() -> None:
    assert [target for _, target in pairs_of(READ)] == [
        "Die Katzen auf der Matte schlafen.",
        "Die Katzen auf der Matte schläft.",
        "Die Katzen auf der Matte schlafen nicht.",
        "Ja.",
        "Er rennt.",
        "Er rennen.",
        "Er renntet.",
        "Er rennst.",
    ]
    cells = contrast(READ, np.array([-5.0, -6.0, -4.0, -1.0, -3.0, -3.0, -3.5, -9.0]))
    assert cells == (
        Cell("agreement", 0, 1, 0),
        Cell("agreement", 4, 1, 1),
        Cell("agreement", 40, 1, 1),
        Cell("other", 16, 1, 1),
        Cell("polarity", None, 1, 0),
    )
    every = accuracy(cells)
    assert (every.pairs, every.right, every.percent) == (5, 3, 60.0)
    assert [(one.name, one.pairs, one.right) for one in by_type(cells)] == [
        ("agreement", 3, 2),
        ("other", 1, 1),
        ("polarity", 1, 0),
    ]
    assert [(one.name, one.pairs, one.right) for one in by_distance(cells)] == [("0", 1, 0), ("4", 1, 1), (">15", 2, 2)]
    assert by_distance([Cell("polarity", None, 1, 0)]) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[{", "pairs, line 1: expected JSON, found "),
        ("[" * 100_000, "pairs: expected JSON, found objects or lists too deep"),
        (f"[{'9' * 5000}]", "pairs: expected JSON, found "),
        ("{}", "pairs: expected a JSON list of entries, found an object"),
        ("[]", "pairs: expected at least one contrastive pair, found none"),
        (json.dumps(FOUND[1:2]), "pairs: expected at least one contrastive pair, found none"),
        (
            json.dumps([FOUND[0], 7]),
            "pairs, entry 2: expected an object with source, reference and errors, found a num",
        ),
        (json.dumps([{"source": "a", "reference": "b"}]), "pairs, entry 1: expected 'errors' as a list, found nothing"),
        (json.dumps([{"source": "a", "errors": []}]), "pairs, entry 1: expected 'reference' as text, found nothing"),
        (
            json.dumps([{"source": " ", "reference": "b", "errors": []}]),
            "pairs, entry 1: expected 'source' as text, found nothing but white space",
        ),
        (
            json.dumps([{"source": "a", "reference": "b", "errors": [{"contrastive": "c"}, {"type": "x"}]}]),
            "pairs, entry 1, error 2: expected 'contrastive' as text, found nothing",
        ),
        (
            json.dumps([{"source": "a", "reference": "b", "errors": [{"contrastive": "c", "distance": -1}]}]),
            "pairs, entry 1, error 1: expected 'distance' as a number of words, found -1",
        ),
        (
            json.dumps([{"source": "a", "reference": "b", "errors": ["c"]}]),
            "pairs, entry 1, error 1: expected an object with contrastive, type and distance, found text",
        ),
    ],
)
def test_errors_name_file_and_entry(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "pairs").write_text(content)
    with pytest.raises(InputError) as error:
        read_contrastive(tmp_path / "pairs")
    assert str(error.value).startswith(f"{tmp_path}/{told}")
