"""The best server around CTranslate2 that we can write, to stand beside ours under load (serving_load.py).

    longstride export --to ctranslate2 --precision int8 -m MODEL -o CT2
    python benchmarks/ctranslate2_server.py CT2 MODEL --port 5001 --workers 1 --threads 2

Dynamic batching: whenever a worker is free it takes all that waits, up to `--rows` sentences (of like length where
there are more) and translates them greedily in one call. Requests are answered one by one. The queue is bounded, and
there is no framework between the socket and it: JSON in, JSON out, LibreTranslate's /translate for one text or a list.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece
import uvicorn


class Batcher:
    """Sentences that wait, and threads that translate them."""

    def __init__(self, translator: Any, workers: int, rows: int, most: int) -> None:
        self._translator, self._rows, self._most = translator, rows, most
        self._waiting: list[tuple[list[str], asyncio.Future[list[str]], asyncio.AbstractEventLoop]] = []
        self._changed = threading.Condition()
        for _ in range(workers):
            threading.Thread(target=self._work, daemon=True).start()

    async def translate(self, sentences: list[list[str]]) -> list[list[str]] | None:
        """The outputs of a request's sentences; None: there is no room."""
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in sentences]
        with self._changed:
            if len(self._waiting) + len(sentences) > self._most:
                return None
            self._waiting += [(one, future, loop) for one, future in zip(sentences, futures, strict=True)]
            self._changed.notify()
        return await asyncio.gather(*futures)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                # The one that waits longest, and those most like it in length.
                first = len(self._waiting[0][0])
                order = sorted(range(len(self._waiting)), key=lambda place: abs(len(self._waiting[place][0]) - first))
                chosen = set(order[: self._rows]) | {0}
                batch = [self._waiting[place] for place in sorted(chosen)]
                self._waiting = [one for place, one in enumerate(self._waiting) if place not in chosen]
            longest = max(len(pieces) for pieces, _, _ in batch)
            found = self._translator.translate_batch(
                [pieces for pieces, _, _ in batch], beam_size=1, max_decoding_length=2 * longest + 20
            )
            for (_, future, loop), result in zip(batch, found, strict=True):
                loop.call_soon_threadsafe(_settle, future, result.hypotheses[0])


def _settle(future: asyncio.Future[list[str]], pieces: list[str]) -> None:
    if not future.done():
        future.set_result(pieces)


def application(batcher: Batcher, tokenizer: Any) -> Any:
    """The server as an ASGI application."""

    async def answer(send: Any, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] in ("/health", "/ready"):
            await answer(send, 200, {"status": "ready"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        asked = json.loads(body)
        texts = asked["q"] if isinstance(asked["q"], list) else [asked["q"]]
        found = await batcher.translate([tokenizer.encode(text, out_type=str) for text in texts])
        if found is None:
            await answer(send, 503, {"error": "The server is full."})
            return
        outputs = [tokenizer.decode(pieces) for pieces in found]
        await answer(send, 200, {"translatedText": outputs if isinstance(asked["q"], list) else outputs[0]})

    return app


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="CTranslate2 model")
    parser.add_argument("model", type=Path, help="model folder, for its tokenizer.model")
    parser.add_argument("--port", type=int, default=5001)
    parser.add_argument("--workers", type=int, default=1, help="batches side by side")
    parser.add_argument("--threads", type=int, default=2, help="threads of each")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--max-waiting", type=int, default=1024)
    told = parser.parse_args()
    translator = ctranslate2.Translator(
        str(told.folder),
        device="cpu",
        compute_type=told.precision,
        inter_threads=told.workers,
        intra_threads=told.threads,
    )
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(told.model / "tokenizer.model"))
    app = application(Batcher(translator, told.workers, told.rows, told.max_waiting), tokenizer)
    uvicorn.run(app, port=told.port, log_level="warning", access_log=False, lifespan="off")


if __name__ == "__main__":
    main()
