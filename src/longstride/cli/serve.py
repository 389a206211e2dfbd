"""longstride serve: model folders behind HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli import options as shared
from longstride.cli.console import out, say
from longstride.cli.streams import is_standard
from longstride.contract import OptionError, WorkError
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.serving.models import ModelSpec
    from longstride.serving.server import Server
    from longstride.text.glossary import Glossary

SENTENCE = "Good morning."
"""What --check translates."""

UVICORN = "uvicorn.error"
"""The logger of all that uvicorn tells."""
SWITCH = 0.0005
"""Seconds after which a thread that decodes lets the one that answers run, instead of Python's 0.005: whoever is
refused is to hear of it at once."""


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option("-m", "--model", help="Model folder, or NAME=FOLDER; may be given several times."),
    ] = None,
    languages: Annotated[
        list[str] | None,
        typer.Option(help="Languages of each model in turn, as en-de (default: as the folder's name says)."),
    ] = None,
    decoder: shared.DecoderName = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 5000,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A limit of the server as name=value (docs/serving.md); may be given several times."
        ),
    ] = None,
    glossary: Annotated[
        list[Path] | None,
        typer.Option(
            help="Glossary of each model in turn, or one for the only model (docs/terminology.md); - for none."
        ),
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys (JSON); without one everybody may ask.")] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="Origin of pages that may ask from elsewhere, or *; several times.")
    ] = None,
    drafter: shared.DrafterFolder = None,
    runtime: shared.Runtime = "auto",
    precision: shared.Precision = "auto",
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    check: Annotated[bool, typer.Option("--check", help="Start, translate one sentence and leave.")] = False,
) -> None:
    """Answer requests over HTTP: LibreTranslate's API, OpenAI's completions, and our own.

    SIGTERM drains, a second one stops; SIGHUP opens model folders anew that have changed.
    """
    _check_packages()
    from longstride.contract.options import parse
    from longstride.serving.app import make_app
    from longstride.serving.door import Door
    from longstride.serving.keys import Keys
    from longstride.serving.metrics import Metrics
    from longstride.serving.models import Models
    from longstride.serving.server import Server
    from longstride.serving.settings import ServerSettings

    settings: ServerSettings = parse(ServerSettings, shared.settings(set), "serve")
    known = Keys.read(keys) if keys is not None else None
    opened = partial(_opened, runtime, precision, device, drafter, threads)
    told = _told(model or [BUNDLED], languages or [])
    terms = _glossaries(glossary or [], len(told))
    specs = [_spec(name, pair, decoder, opened, terms) for (name, pair), terms in zip(told, terms, strict=True)]
    listening = ("127.0.0.1", 0) if check else (host, port)
    _check_address(*listening)
    metrics = Metrics()
    models = Models(specs, settings, metrics.watcher)
    ready = asyncio.Event()
    app = make_app(models, metrics, None if check else known, cors or [], ready.set)
    door = Door(lambda: models.room, metrics.request)
    server = Server(app, *listening, settings, partial(_reload, models), door, models.stop, _overdue)
    sys.setswitchinterval(SWITCH)
    with _logging(), suppress(SystemExit):  # uvicorn's, where it cannot listen
        asyncio.run(_checked(server, specs[0]) if check else _serving(server, host, ready))
    if not server.started:
        raise WorkError(f"{host}:{port}: could not be listened on.")


def _check_packages() -> None:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise OptionError(
            f"serve expects the package {error.name}, which is not installed here: pip install 'longstride[serving]'."
        ) from None


def _check_address(host: str, port: int) -> None:
    """Before models are opened, which takes seconds: often another server has the port."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address, family=family).close()
    except OSError as error:
        told = str(error.strerror or error).partition(" (while")[0]
        raise WorkError(
            f"{host}:{port}: could not be listened on ({told}); --port names another port, --host another address."
        ) from None


def _told(models: list[str], languages: list[str]) -> list[tuple[str, str | None]]:
    if languages and len(languages) != len(models):
        raise OptionError(f"--languages expects one pair for each of {len(models)} models, found {len(languages)}.")
    told: list[str | None] = [*languages] or [None] * len(models)
    return list(zip(models, told, strict=True))


def _glossaries(files: list[Path], models: int) -> list[Callable[[], Glossary] | None]:
    """What reads the glossary of each model."""
    from longstride.text.glossary import Glossary

    if files and len(files) != models:
        raise OptionError(f"--glossary expects one file for each of {models} models, found {len(files)}.")
    return [None if is_standard(file) else partial(Glossary.read, file) for file in files] or [None] * models


def _spec(
    model: str, languages: str | None, decoder: str | None, opened: Any, glossary: Callable[[], Glossary] | None
) -> ModelSpec:
    from longstride.serving.models import ModelSpec, languages_of

    name, _, folder = model.rpartition("=")
    shared.model_path(folder)  # refuses one that is not there
    name = name or (BUNDLED if folder == BUNDLED else Path(folder).resolve().name)
    pair = languages_of(languages or ("en-de" if folder == BUNDLED else name))
    if pair is None or (languages is not None and "-".join(pair) != languages):
        raise OptionError(
            f"--languages expects a pair as en-de for {name}, whose name tells none, found {languages or 'none'}."
        )
    return ModelSpec(name, *pair, partial(opened, folder), decoder, glossary)


def _opened(runtime: str, precision: str, device: str, drafter: str | None, threads: int | None, folder: str) -> Any:
    translator = shared.open_model(folder, runtime, precision, device, drafter, threads)
    shared.say_report(translator, runtime=runtime, precision=precision)
    return translator


@contextmanager
def _logging() -> Iterator[None]:
    """Lines of JSON to stderr."""
    from longstride.serving.logs import JsonFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    loggers = [logging.getLogger(name) for name in ("longstride", UVICORN)]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    logging.getLogger(UVICORN).setLevel(logging.WARNING)  # until it is ready, which we tell
    try:
        yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)


def _overdue() -> None:
    """End the process though something runs in it that does not end."""
    logging.getLogger("longstride.serving").error("The server did not end in time; what still runs is given up.")
    os._exit(1)


def _reload(models: Any) -> None:
    log = logging.getLogger("longstride.serving")
    try:
        changed = models.reload()
    except Exception as error:  # what runs goes on
        log.error("A model folder could not be opened anew: %s", error)
    else:
        log.info("Opened anew: %s.", ", ".join(changed) or "nothing, since nothing has changed")


async def _serving(server: Server, host: str, ready: asyncio.Event) -> None:
    running = await server.start()
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    logging.getLogger(UVICORN).setLevel(logging.INFO)
    if ready.is_set() and server.started:
        say(f"Ready: http://{host}:{server.port} (API: /docs)")
    waiting.cancel()
    await running


async def _checked(server: Server, spec: ModelSpec) -> None:
    from longstride.client import AsyncClient

    running = await server.start()
    try:
        async with AsyncClient(f"http://127.0.0.1:{server.port}", timeout=600, trust_env=False) as client:
            out.print(await client.translate(SENTENCE, spec.source, spec.target), markup=False)
    finally:
        server.should_exit = True
        await running
