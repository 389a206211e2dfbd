"""The server as an ASGI application: endpoints, what stands before them, and what becomes of errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from time import monotonic

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from longstride.serving import api_page, files, generate, libretranslate, openai, operations, web_page
from longstride.serving.downloads import Downloads
from longstride.serving.errors import BadRequestError, OverloadedError, ServingError
from longstride.serving.guard import Guard
from longstride.serving.keys import Keys
from longstride.serving.metrics import Metrics
from longstride.serving.models import Models
from longstride.serving.service import Service
from longstride.serving.state import ServerState
from longstride.serving.web import ERRORS, OPENAI_ERRORS, described, error_response, plain_response
from longstride.version import __version__

LAST, SHORT = 2.0, 0.01
"""Seconds in which schedulers end, twice, and between two looks whether they have."""
AGAIN = 1.0
"""Seconds between two tries to make models ready."""
log = logging.getLogger("longstride.serving")


def make_app(
    models: Models,
    metrics: Metrics | None = None,
    keys: Keys | None = None,
    origins: Sequence[str] = (),
    ready: Callable[[], None] | None = None,
) -> ASGIApp:
    """A server for models; `origins` of pages elsewhere that may ask it (none: CORS is off); `ready` is called once the
    models are."""
    settings, metrics = models.settings, metrics or Metrics()
    state = ServerState(Service(models), keys or Keys(), metrics, Downloads(settings.file_seconds))
    metrics.watch_loads(lambda: _loads(models))

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(_warm_up(state, ready))
        try:
            yield
        finally:
            warming.cancel()
            state.draining = True
            models.drain()  # all requests are over, or were given up
            for end in (models.stop, lambda: None):
                until = monotonic() + LAST
                while not models.join(0) and monotonic() < until:
                    await asyncio.sleep(SHORT)  # not in a thread: all of them may be busy
                end()
            await asyncio.to_thread(state.service.apart.close)

    app = FastAPI(title="Longstride", version=__version__, lifespan=life, docs_url=None, redoc_url=None)
    app.state.server = state
    for router in (libretranslate.router, files.router, generate.router):
        app.include_router(router, responses=ERRORS)
    app.include_router(openai.router, responses=OPENAI_ERRORS)
    app.include_router(operations.router)
    app.include_router(api_page.router)
    app.include_router(web_page.router)
    app.add_exception_handler(ServingError, _serving_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)
    if origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"])
    return Guard(app, settings, metrics.request, lambda: models.room <= 0)


async def _warm_up(state: ServerState, ready: Callable[[], None] | None = None) -> None:
    while not state.ready:
        try:
            await state.service.warm_up()
            state.ready = True
            if ready is not None:
                ready()
        except OverloadedError:  # by requests that came first: whoever asks whether it is ready would never hear so
            await asyncio.sleep(AGAIN)
        except ServingError as error:
            log.error("The models could not be made ready: %s", error)
            return


def _loads(models: Models) -> Iterable[tuple[str, str, int, int]]:
    for model in models:
        for decoder, scheduler in model.schedulers.items():
            yield model.spec.name, decoder, scheduler.live, scheduler.waiting


async def _serving_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServingError)
    return error_response(request, error)


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return error_response(request, BadRequestError(f"Invalid request: {described(error.errors()[0])}"))


async def _internal_error(request: Request, error: Exception) -> JSONResponse:
    """What the guard then finds raised, and logs."""
    return plain_response(request, 500, "internal error")


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return plain_response(request, error.status_code, str(error.detail), error.headers)
