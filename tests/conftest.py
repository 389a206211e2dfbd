"""How property tests draw their examples: anew every time or, by the profile `ci`, the same ones on every machine.

A rare example that fails is worth finding, but not as the failure of a change that has nothing to do with it. So `make
test`, which gates changes, sets HYPOTHESIS_PROFILE=ci; plain pytest draws at random, as does
`HYPOTHESIS_PROFILE=default make test`.

The same examples every time find what is broken now, which the first of them do; to search on is what drawing at random
is for. So `ci` takes half of the examples that a test asks for.

And how often garbage is looked for: rarely, as the command itself has it (cli/entry.py). Thousands of tests, their
modules and PyTorch are there until the end; looking through them again and again takes up to a tenth of the time. While
they are collected nothing is looked for: all of that stays.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as shells begin what runs in the background; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # tests ask for the package by its name too
os.environ["LONGSTRIDE_CACHE"] = ""  # nothing is kept in the user's cache folder
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported

settings.register_profile("default", deadline=None)  # speed is a benchmark, never a timed test
settings.register_profile("ci", derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
profile = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(profile)

FEWEST = 5
"""A test that asks for no more examples than this gets them."""
INTERPRETED = 3
"""Examples of a kernel in Triton's interpreter."""
OWN = "_hypothesis_internal_use_settings"
"""Where a test keeps what `@settings` says; a version of hypothesis without it only takes longer."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Halve the examples of each property test, once, however often it is parametrised."""
    if profile != "ci":
        return
    interpreted = not torch.cuda.is_available()
    tests = {id(item.function): item for item in items if hasattr(getattr(item, "function", None), "hypothesis")}
    for item in tests.values():
        own = getattr(item.function, OWN, settings.default)
        if own is not None and own.max_examples > FEWEST:
            slow = interpreted and item.get_closest_marker("gpu")
            fewer = INTERPRETED if slow else max(FEWEST, own.max_examples // 2)
            setattr(item.function, OWN, settings(own, max_examples=fewer))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: a compressor writes the time into them, and xdist's workers must agree on names.

    pytest numbers names that occur twice.
    """
    return argname if isinstance(val, bytes) else None


def pytest_collection_finish() -> None:
    """What is here by now stays, and is not looked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Give PyTorch back the threads that it had: a command that sets them sets them for the process.

    Each worker has one core. With a thread more for every product, tests of tiny models took up to seven times as long,
    from the first that ran `longstride demo` to the last.
    """
    threads = torch.get_num_threads()
    try:
        return (yield)
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
