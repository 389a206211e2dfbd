from __future__ import annotations

import pytest

from longstride.contract.suggestions import meant


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        ("Greedy", ["greedy", "beam"], "greedy"),
        ("draft_verify", ["draft", "draft-verify"], "draft-verify"),
        ("bema", ["greedy", "beam"], "beam"),
        ("cuda", ["eager", "cuda-graph"], "cuda-graph"),
        ("num_beams", ["width", "n_best"], "width"),
        ("max-new-tokens", ["min_length", "max_length"], "max_length"),
        ("batch_size", ["batch_sizes", "rows"], "batch_sizes"),
        ("lattice", [], ""),
        ("", ["greedy"], ""),
        ("x" * 10**6, ["greedy", "x"], ""),
    ],
)
def test_the_nearest_name_is_what_was_meant(name: str, names: list[str], found: str) -> None:
    assert meant(name, names) == (f" (did you mean {found}?)" if found else "")
