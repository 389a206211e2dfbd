"""Decoders that requests ask for: some are kept ready, and of the others nothing stays in memory."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest

import longstride
from tests.serving.conftest import HANG, Served

LINE = "The Council has decided."


@pytest.fixture
def served() -> Any:
    made = Served(longstride.load(), max_decoders=2)
    yield made
    made.close()


async def ask(client: Any, decoder: str, **more: Any) -> str:
    answer = await client.post("/generate", json={"text": LINE, "decoder": decoder, **more})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["outputs"][0]["text"])


def settled(served: Served) -> None:
    """Once those that leave are gone."""
    until = time.monotonic() + HANG
    while served.models.named(None)._leaving and time.monotonic() < until:
        time.sleep(0.01)
    gc.collect()


def test_of_decoders_that_are_not_kept_nothing_stays(served: Served) -> None:
    model = served.models.named(None)
    runner, names = model.translator.runner, ["beam", "interleaved", "lattice", "blockwise", "draft", "beam"]
    seen: dict[str, weakref.ref[Any]] = {}
    modules: dict[str, weakref.ref[Any]] = {}

    async def work() -> list[str]:
        async with served.client as client:
            told = []
            for name in names:
                told.append(await ask(client, name))
                scheduler = model.schedulers[name]
                seen[name] = weakref.ref(scheduler)
                modules.update({part: weakref.ref(one) for part, one in model.translator._parts.items()})
                await asyncio.to_thread(settled, served)
                del scheduler
                assert len(model.schedulers) <= 3
            return told

    told = asyncio.run(work())
    settled(served)
    assert told[0] == told[-1]
    assert set(model.schedulers) == {model.decoders[0], "draft", "beam"}
    assert {name for name, one in seen.items() if one() is not None} == {"draft", "beam"}
    for part in ("interleaved", "scorer", "heads"):
        assert modules[part]() is None
        assert part not in model.translator._parts
    kept = {one for part in model.translator._parts.values() for one in part.modules()}
    assert all(kept.issuperset(key[1]) for key in runner.graphs)  # type: ignore[attr-defined]


def test_requests_for_decoders_that_leave_are_answered(served: Served) -> None:
    """Whichever was given up meanwhile is made again."""
    names = ["beam", "blockwise", "draft-verify", "sample"] * 4

    async def work() -> list[str]:
        async with served.client as client:
            return await asyncio.gather(*(ask(client, name) for name in names))

    told = asyncio.run(work())
    settled(served)
    assert told[:4] == told[4:8] == told[8:12] == told[12:]
    assert len(served.models.named(None).schedulers) <= 3
