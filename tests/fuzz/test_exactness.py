"""A few cases of the hunt for drafts that change an output; `make fuzz-exactness` goes on."""

from __future__ import annotations

import pytest

from tests.fuzz.exactness import differs


@pytest.mark.filterwarnings("ignore:The runtime native carries the program:RuntimeWarning")
@pytest.mark.parametrize("seed", range(25))
def test_drafts_change_no_output(seed: int) -> None:
    assert differs(seed) == ""
