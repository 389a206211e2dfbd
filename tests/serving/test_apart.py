"""Functions in processes of their own: their results and errors come back, and whatever they do the server goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from longstride.serving import subtitles, word
from longstride.serving.apart import MOST_WAITING, PROCESSES, Apart
from longstride.serving.errors import BadRequestError, DeadlineError, OverloadedError, ServingError
from longstride.serving.html import check_number
from tests.serving.conftest import HANG

FOREVER = "sum(1 for _ in iter(int, 1))"
PID = "__import__('os').getpid()"


@pytest.fixture
def apart() -> Iterator[Apart]:
    made = Apart(seconds=1)
    yield made
    made.close()


def done(apart: Apart, expression: str) -> Any:
    return asyncio.run(apart.run(HANG, eval, expression))


def test_what_a_function_returns_or_raises_comes_back(apart: Apart) -> None:
    assert done(apart, "6 * 7") == 42
    with pytest.raises(BadRequestError, match="5 sentences") as raised:
        asyncio.run(apart.run(HANG, check_number, 5, 4))
    assert raised.value.status == 413
    with pytest.raises(ZeroDivisionError):
        done(apart, "1 / 0")


def test_a_process_imports_no_torch_and_serves_small_jobs_again(apart: Apart) -> None:
    for function in (subtitles.subtitles, word.words):
        with pytest.raises(TypeError):
            asyncio.run(apart.run(HANG, function))  # imported, and given too little
    modules = done(apart, "list(__import__('sys').modules)")
    assert "longstride.serving.word" in modules
    assert not {"torch", "numpy", "fastapi"} & set(modules)
    first = done(apart, PID)
    assert done(apart, PID) == first
    assert done(apart, "__import__('sys').__dict__.setdefault('kept', b'x' * (100 << 20))[:1]") == b"x"
    assert done(apart, PID) != first


@pytest.mark.parametrize(
    "expression", [FOREVER, "b'x' * (1 << 40)", "b'x' * (600 << 20)", "__import__('os')._exit(3)", "{lambda: 0}"]
)
def test_one_that_takes_too_much_is_refused_and_the_next_is_served(apart: Apart, expression: str) -> None:
    with pytest.raises(ServingError, match="takes more than 1 seconds or 512 MiB") as raised:
        done(apart, expression)
    assert raised.value.status == 413
    assert done(apart, "6 * 7") == 42


def test_another_job_is_done_meanwhile() -> None:
    apart = Apart(seconds=HANG)

    async def work() -> int:
        endless = asyncio.ensure_future(apart.run(HANG, eval, FOREVER))
        await asyncio.sleep(0.1)
        found: int = await apart.run(HANG, eval, "6 * 7")
        assert not endless.done()
        endless.cancel()
        await asyncio.gather(endless, return_exceptions=True)
        return found

    assert asyncio.run(work()) == 42
    apart.close()  # which would wait for a process that still ran


def test_a_job_ends_with_its_request() -> None:
    apart = Apart(seconds=HANG)
    with pytest.raises(DeadlineError):
        asyncio.run(apart.run(0.3, eval, FOREVER))
    apart.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("longstride-apart")]


def test_jobs_that_wait_are_bounded() -> None:
    apart = Apart(seconds=HANG)

    async def work() -> None:
        jobs = [asyncio.ensure_future(apart.run(HANG, eval, FOREVER)) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await apart.run(HANG, eval, "6 * 7")
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        assert await apart.run(HANG, eval, "6 * 7") == 42

    asyncio.run(work())
    apart.close()
    assert PROCESSES < MOST_WAITING
