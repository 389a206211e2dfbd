"""One sentence is decoded by the same decoder on every route, traced or not, and each route names that decoder."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

import longstride
from longstride.serving.app import make_app
from longstride.serving.metrics import Metrics
from longstride.serving.models import Models, ModelSpec
from longstride.serving.settings import ServerSettings
from longstride.translator import Translator
from longstride.verification import fastest
from tests.family import write_family
from tests.runtime.graphs import WHY_NOT_NATIVE
from tests.serving.conftest import HANG

pytestmark = pytest.mark.skipif(bool(WHY_NOT_NATIVE), reason=WHY_NOT_NATIVE or "none")
LINE = "a b c"
LIMITS = {"max_length": 9, "min_length": 8}
TRIED = 2
"""Replaces TRIALS and LONGER"""
REQUESTS = 3 * (TRIED * TRIED + 1) + 2
Said = tuple[str, str | None]
"""A text and the name of the decoder, if the answer has one"""
Ask = Callable[[httpx.AsyncClient, Translator], Said]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("family") / "model", default="greedy")


@contextmanager
def counted_steps() -> Iterator[None]:
    """Time is how often it was asked for, and so the same in every run."""
    clock = count()
    with patch.multiple(fastest, perf_counter=lambda: float(next(clock)), TRIALS=TRIED, LONGER=TRIED):
        yield


def opened(folder: Path) -> Translator:
    return longstride.load(folder, device="cpu", runtime="native", precision="fp32")


async def _plain(client: httpx.AsyncClient, translator: Translator) -> Said:
    return translator.translate(LINE, **LIMITS), None


async def _traced(client: httpx.AsyncClient, translator: Translator) -> Said:
    found = translator.translate(LINE, trace=True, **LIMITS)
    assert found.trace is not None
    assert (found.trace.drafted > 0) == (found.decoder == "draft-verify")
    return found.text, found.decoder


async def _listed(client: httpx.AsyncClient, translator: Translator) -> Said:
    [found] = translator.translate([LINE], **LIMITS)
    return found.text, found.decoder


async def _streamed(client: httpx.AsyncClient, translator: Translator) -> Said:
    return "".join(translator.stream(LINE, **LIMITS)), None


async def _libretranslate(client: httpx.AsyncClient, translator: Translator) -> Said:
    before = await _ran(client)
    found = (await client.post("/translate", json={"q": LINE, "source": "en", "target": "de"})).json()
    after = await _ran(client)
    [name] = [name for name in after if after[name] != before.get(name, 0)]
    return found["translatedText"], name


async def _generated(client: httpx.AsyncClient, translator: Translator) -> Said:
    found = (await client.post("/generate", json={"text": LINE})).json()
    return found["outputs"][0]["text"], found["decoder"]


async def _generated_traced(client: httpx.AsyncClient, translator: Translator) -> Said:
    found = await client.post("/generate", json={"text": LINE, "stream": True, "trace": True})
    *steps, done = [json.loads(line[6:]) for line in found.text.split("\n\n") if line]
    assert any(step["drafted"] for step in steps) == (done["decoder"] == "draft-verify")
    return done["text"], done["decoder"]


async def _ran(client: httpx.AsyncClient) -> dict[str, float]:
    """Sentences that were decoded, by the name of the decoder that ran."""
    text = (await client.get("/metrics")).text
    found = re.findall(r'longstride:request_success_total\{.*ran="([^"]*)".*\} (\S+)', text)
    return {name: float(number) for name, number in found}


ROUTES = {
    "translate": _plain,
    "translate, traced": _traced,
    "translate of a list": _listed,
    "stream": _streamed,
    "/translate": _libretranslate,
    "/generate": _generated,
    "/generate, traced": _generated_traced,
}


def asked(folder: Path, routes: list[str]) -> tuple[list[Said], dict[str, list[str]]]:
    """Return the answers in turn, and the decoders that /ready names afterwards."""
    translator, metrics = opened(folder), Metrics()
    spec = ModelSpec("tiny", "en", "de", lambda: translator, options=LIMITS)

    async def ask(models: Models) -> tuple[list[Said], dict[str, list[str]]]:
        transport = httpx.ASGITransport(make_app(models, metrics))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=HANG) as client:
            said = [await ROUTES[route](client, translator) for route in routes]
            return said, (await client.get("/ready")).json()["decoders"]["tiny"]["greedy"]

    with counted_steps():
        models = Models([spec], ServerSettings(timeout=HANG), metrics.watcher)
        try:
            return asyncio.run(ask(models))
        finally:
            models.stop()
            assert models.join(HANG)


@pytest.mark.parametrize("seed", range(4))
def test_the_nth_request_is_decoded_by_the_same_decoder_whoever_asks(folder: Path, seed: int) -> None:
    """The choice is learned from all of them, and holds for all of them."""
    routes = random.Random(seed).choices(sorted(ROUTES), k=REQUESTS)
    expected, ready = asked(folder, ["translate of a list"] * len(routes))
    found, same = asked(folder, routes)
    for (text, name), (other, wanted) in zip(found, expected, strict=True):
        assert text == other
        assert name in (None, wanted)
    assert {name for _, name in expected} == {"greedy", "draft-verify"}, "while it is tried"
    assert ready == same
    assert len(ready["alone"]) == 1, "chosen"
    assert ready["side_by_side"] == ["greedy"]


def test_a_decoder_that_a_request_names_is_the_one_that_runs(folder: Path) -> None:
    translator, metrics = opened(folder), Metrics()
    chosen, _ = translator.decoder_for(1)
    chosen.chosen = translator.decoder("draft-verify")[0]  # type: ignore[attr-defined]
    models = Models([ModelSpec("tiny", "en", "de", lambda: translator)], ServerSettings(timeout=HANG), metrics.watcher)

    async def ask() -> list[str]:
        transport = httpx.ASGITransport(make_app(models, metrics))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=HANG) as client:
            bodies = [{"text": LINE}, {"text": LINE, "decoder": "greedy"}, {"text": [LINE] * 9}, {"text": "..."}]
            return [(await client.post("/generate", json=body)).json()["decoder"] for body in bodies]

    assert asyncio.run(ask()) == ["draft-verify", "greedy", "greedy", "greedy"]
    assert translator.translate([LINE], "greedy")[0].decoder == "greedy"
    models.stop()
    assert models.join(HANG)


def test_a_decoder_that_the_server_was_told_to_use_is_the_one_that_runs(folder: Path) -> None:
    translator = opened(folder)
    translator.decoder_for(1)[0].chosen = translator.decoder("draft-verify")[0]  # type: ignore[attr-defined]
    models = Models([ModelSpec("tiny", "en", "de", lambda: translator, "greedy")])
    assert models.named(None).scheduler(None).runs == {"alone": ["greedy"], "side_by_side": ["greedy"]}
