"""Threads of other libraries, which spin while they wait unless the environment tells them to rest."""

from __future__ import annotations

import os

RESTING = {"KMP_BLOCKTIME": "1", "OMP_WAIT_POLICY": "passive"}
"""For Intel's OpenMP, which CTranslate2 brings on x86, and for GNU's, which it brings on ARM and PyTorch everywhere.
Each library has its own, and what one spins away the other one needs: beside PyTorch, CTranslate2 on two ARM cores
took 5 times as long."""


def let_threads_rest() -> None:
    """In libraries that are loaded from now on; what the environment says already stays."""
    for name, value in RESTING.items():
        os.environ.setdefault(name, value)
