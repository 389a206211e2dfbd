"""A server over the bundled model, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import httpx
import pytest

import longstride
from longstride.serving.app import make_app
from longstride.serving.metrics import Metrics
from longstride.serving.models import Models, ModelSpec
from longstride.serving.settings import ServerSettings
from longstride.translator import Translator

HANG = 120
"""Seconds after which a test has hung."""


@pytest.fixture(scope="package")
def translator() -> Translator:
    return longstride.load("bundled")


class Served:
    """A server without a socket, and clients of it."""

    def __init__(
        self,
        translator: Translator,
        keys: Any = None,
        origins: Any = (),
        others: Mapping[str, Translator] | None = None,
        glossary: Any = None,
        **settings: Any,
    ) -> None:
        self.settings = ServerSettings(**{"timeout": HANG, **settings})
        self.metrics = Metrics()
        every = {"bundled": translator, **(others or {})}
        specs = [ModelSpec(name, "en", "de", partial(every.__getitem__, name), glossary=glossary) for name in every]
        self.models = Models(specs, self.settings, self.metrics.watcher)
        self.app = make_app(self.models, self.metrics, keys, origins)

    @property
    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://test",
            timeout=HANG,  # type: ignore[arg-type]
        )

    def close(self) -> None:
        self.models.stop()
        assert self.models.join(HANG)


@pytest.fixture(scope="package")
def served(translator: Translator) -> Iterator[Served]:
    made = Served(translator)
    yield made
    made.close()
