"""A client of `longstride serve`, in two kinds: Client waits for answers, AsyncClient is for event loops.

with longstride.client.Client("http://127.0.0.1:5000") as client:
    client.translate("Good morning!", "en", "de")
    for event in client.stream("Good morning!"): ...
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, overload

import httpx

from longstride.contract.errors import InputError, WorkError
from longstride.contract.options import shown


class ServerError(WorkError):
    """A server that refused or failed."""

    def __init__(self, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


def _result(response: httpx.Response) -> Any:
    try:
        content = response.json()
        if response.is_success:
            return content
        told = content["error"]
        message = told["message"] if isinstance(told, dict) else str(told)
    except (ValueError, KeyError, TypeError):
        message = f"expected an answer in JSON, found {response.text[:200]!r}."
    after = response.headers.get("retry-after", "")
    raise ServerError(message, response.status_code, float(after) if after.isdigit() else None)


def _asked(text: str | Sequence[str], source: str, target: str, options: dict[str, Any]) -> dict[str, Any]:
    return {"q": _texts(text), "source": source, "target": target, **options}


def _texts(text: object) -> str | list[str]:
    if isinstance(text, str):
        return text
    texts: list[Any] = list(text) if isinstance(text, Iterable) else [text]
    if not all(isinstance(one, str) for one in texts):
        raise InputError(f"Expected a text or several to translate, found {shown(text)}.")
    return texts


@contextmanager
def _answering(address: str) -> Iterator[None]:
    """Where nobody listens, it is said at which address."""
    try:
        yield
    except httpx.ConnectError as error:
        told = re.sub(r"^\[Errno -?\d+\] ", "", str(error))
        raise WorkError(f"{address}: no server answers ({told}); `longstride serve` starts one.") from error


def _events(line: str) -> Iterator[dict[str, Any]]:
    if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
        event = json.loads(data)
        if "error" in event:
            raise ServerError(str(event["error"]), int(event.get("status", 500)))
        yield event


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


class Client:
    """Waits for every answer."""

    def __init__(self, address: str, key: str | None = None, timeout: float = 60, **options: Any) -> None:
        """`options` are httpx.Client's."""
        self._address = address
        self._http = httpx.Client(base_url=address, headers=_headers(key), timeout=timeout, **options)

    @overload
    def translate(self, text: str, source: str, target: str, **options: Any) -> str: ...

    @overload
    def translate(self, text: Sequence[str], source: str, target: str, **options: Any) -> list[str]: ...

    def translate(self, text: str | Sequence[str], source: str, target: str, **options: Any) -> str | list[str]:
        """A text, or several at once; options are format and the like (LibreTranslate's)."""
        asked = _asked(text, source, target, options)
        with _answering(self._address):
            response = self._http.post("/translate", json=asked)
        found: str | list[str] = _result(response)["translatedText"]
        return found

    def generate(self, text: str | Sequence[str], **options: Any) -> dict[str, Any]:
        """/generate: the answer with figures; options are model, decoder, whole and the like."""
        asked = {"text": _texts(text), **options}
        with _answering(self._address):
            found: dict[str, Any] = _result(self._http.post("/generate", json=asked))
        return found

    def stream(self, text: str, **options: Any) -> Iterator[dict[str, Any]]:
        """/generate, event by event: tokens as they are committed; with `trace`, every step."""
        asked = {"text": text, "stream": True, **options}
        with _answering(self._address), self._http.stream("POST", "/generate", json=asked) as response:
            if not response.is_success:
                response.read()
                _result(response)
            for line in response.iter_lines():
                yield from _events(line)

    def get(self, path: str) -> Any:
        """Another answer in JSON: /languages, /ready, /v1/models."""
        with _answering(self._address):
            return _result(self._http.get(path))

    def close(self) -> None:
        """End its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClient:
    """The same for event loops."""

    def __init__(self, address: str, key: str | None = None, timeout: float = 60, **options: Any) -> None:
        """`options` are httpx.AsyncClient's."""
        self._address = address
        self._http = httpx.AsyncClient(base_url=address, headers=_headers(key), timeout=timeout, **options)

    @overload
    async def translate(self, text: str, source: str, target: str, **options: Any) -> str: ...

    @overload
    async def translate(self, text: Sequence[str], source: str, target: str, **options: Any) -> list[str]: ...

    async def translate(self, text: str | Sequence[str], source: str, target: str, **options: Any) -> str | list[str]:
        """A text, or several at once; options are format and the like (LibreTranslate's)."""
        asked = _asked(text, source, target, options)
        with _answering(self._address):
            response = await self._http.post("/translate", json=asked)
        found: str | list[str] = _result(response)["translatedText"]
        return found

    async def generate(self, text: str | Sequence[str], **options: Any) -> dict[str, Any]:
        """/generate: the answer with figures; options are model, decoder, whole and the like."""
        asked = {"text": _texts(text), **options}
        with _answering(self._address):
            found: dict[str, Any] = _result(await self._http.post("/generate", json=asked))
        return found

    async def stream(self, text: str, **options: Any) -> AsyncIterator[dict[str, Any]]:
        """/generate, event by event: tokens as they are committed; with `trace`, every step."""
        asked = {"text": text, "stream": True, **options}
        with _answering(self._address):
            async with self._http.stream("POST", "/generate", json=asked) as response:
                if not response.is_success:
                    await response.aread()
                    _result(response)
                async for line in response.aiter_lines():
                    for event in _events(line):
                        yield event

    async def get(self, path: str) -> Any:
        """Another answer in JSON: /languages, /ready, /v1/models."""
        with _answering(self._address):
            return _result(await self._http.get(path))

    async def close(self) -> None:
        """End its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
