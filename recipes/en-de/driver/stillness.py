"""Holds running jobs still and lets them go on, with all their children. Knows no schedule.

A job that was stopped must not stay so, whatever happens to who stopped it. So a small process of its own waits on the
other end of a pipe: when this end is closed, by `let_go` or by this process's death, it lets all of them go on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable

WATCH = 'cat > /dev/null; for group in "$@"; do kill -s CONT -- "-$group"; done 2> /dev/null; true'
"""for sh: wait for the end of the pipe, then wake every process group that is named"""


class Stillness:
    """Process groups that are held still."""

    def __init__(self) -> None:
        self._groups: list[int] = []
        self._watch: subprocess.Popen[bytes] | None = None

    def hold(self, groups: Iterable[int]) -> None:
        """Stop these process groups; who watches over them comes first."""
        groups = [group for group in groups if group not in self._groups]
        if not groups:
            return
        every = [*self._groups, *groups]
        before = self._watch
        self._watch = subprocess.Popen(
            ["sh", "-c", WATCH, "watch", *map(str, every)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._groups = every
        if before is not None:
            _dismiss(before)
        # The first watch, on its way out, woke what it knew of: all are stopped, not the new ones alone.
        for group in every:
            send(group, signal.SIGSTOP)

    def let_go(self) -> None:
        """Wake all of them."""
        for group in self._groups:
            send(group, signal.SIGCONT)
        self._groups = []
        if self._watch is not None:
            _dismiss(self._watch)
            self._watch = None

    @property
    def groups(self) -> list[int]:
        """Those that are held."""
        return list(self._groups)


def _dismiss(watch: subprocess.Popen[bytes]) -> None:
    assert watch.stdin is not None
    watch.stdin.close()
    watch.wait()


def send(group: int, what: signal.Signals) -> None:
    """Send a signal to every process of a group, if there are any left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, what)
