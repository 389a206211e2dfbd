"""Files and HTML whose text is translated and whose form stays: plain text, subtitles, HTML, Word."""

from __future__ import annotations

import asyncio
import codecs
import html
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from longstride.serving import word
from longstride.serving.alignment import ROWS, AlignedWords, Aligner, Line, rewritten
from longstride.serving.errors import BadRequestError, CancelledError
from longstride.serving.html import Run, Segment, filled, html_words, parsed
from longstride.serving.models import ServedModel
from longstride.serving.service import Answer, Service, TranslatedPiece
from longstride.serving.subtitles import subtitles
from longstride.text.glossary import Glossary

R = TypeVar("R")
SMALL = 4000
"""Characters of HTML that is read by the event loop itself, which takes some milliseconds at most."""


async def translate_document(service: Service, model: ServedModel, suffix: str, content: bytes) -> bytes:
    """A file of a kind, translated."""
    most = service.settings.max_waiting
    if suffix == ".docx":
        texts = await _apart(service, word.paragraphs, content, most)
        answers = await service.generate(model, texts, many=True)
        return await _apart(service, word.rewritten, content, [answer.text for answer in answers])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"Invalid request: the file is not UTF-8 at byte {error.start}") from None
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""  # by which some programs know UTF-8
    if suffix == ".html":
        [answer] = await translate_html(service, model, [text])
        # A page in ASCII need not be UTF-8 for whoever shows it, whatever it says of itself.
        return answer.text.encode("ascii", "xmlcharrefreplace") if content.isascii() else mark + answer.text.encode()
    if suffix == ".srt":
        parts = await _apart(service, subtitles, text, Aligner.of(model.translator) is not None, most)
        [answer] = await _translated(service, model, [parts], None, str)
    else:
        [answer] = await service.generate(model, [text])
    return mark + answer.text.encode()


async def words_of(service: Service, suffix: str, content: bytes) -> str:
    """Return the text of a file, which tells its language."""
    if suffix == ".docx":
        return await _apart(service, word.words, content)
    text = content.decode("utf-8", "ignore")
    return (await words_of_html(service, [text]))[0] if suffix == ".html" else text


async def words_of_html(service: Service, documents: Sequence[str]) -> list[str]:
    """Return the text of each page."""
    return await _apart(service, html_words, list(documents), size=sum(map(len, documents)))


async def translate_html(
    service: Service, model: ServedModel, documents: Sequence[str], glossary: Glossary | None = None
) -> list[Answer]:
    """Documents with their texts translated, together."""
    moving, most, size = (
        Aligner.of(model.translator) is not None,
        service.settings.max_waiting,
        sum(map(len, documents)),
    )
    parts = await _apart(service, parsed, list(documents), moving, most, size=size)
    return await _translated(service, model, parts, glossary, partial(html.escape, quote=False))


async def _apart(service: Service, function: Callable[..., R], *arguments: Any, size: int = SMALL + 1) -> R:
    """Call a function: here if its documents are small (`size` in characters), else in a process of its own."""
    if size <= SMALL:
        return function(*arguments)
    return await service.apart.run(service.settings.timeout, function, *arguments)


async def _translated(
    service: Service,
    model: ServedModel,
    parts: Sequence[Sequence[Run | Segment]],
    glossary: Glossary | None,
    escape: Callable[[str], str],
) -> list[Answer]:
    """Translate the texts of documents, given in parts, and join each."""
    texts = [part for one in parts for part in one if isinstance(part, Segment)]
    model, pieces = await service.pieces(model, [part.text for part in texts], glossary)
    given_up = threading.Event()
    try:
        done = list(zip(texts, pieces, strict=True))
        written = iter(await asyncio.to_thread(_written, model, done, escape, given_up))
    finally:
        given_up.set()
    found = iter(pieces)
    answers = []
    for one in parts:
        text = filled(one, written)
        mine = [piece for part in one if isinstance(part, Segment) for piece in next(found)]
        answers.append(Answer(text, sum(len(piece.ids) for piece in mine), sum(len(piece.tokens) for piece in mine)))
    return answers


def _written(
    model: ServedModel,
    done: Sequence[tuple[Segment, list[TranslatedPiece]]],
    escape: Callable[[str], str],
    given_up: threading.Event,
) -> list[str]:
    """Translated texts with their tags; attention is looked at where it says something."""
    aligner = Aligner.of(model.translator)  # of the one that has translated them

    def align(lines: Sequence[Line]) -> Iterator[AlignedWords]:
        if aligner is None:
            return
        for first in range(0, len(lines), ROWS):
            if given_up.is_set():
                raise CancelledError("The time for this request was over before it was done.")
            with model.turns:  # which others get in between
                words = aligner.align(lines[first : first + ROWS])
            yield from words

    return rewritten(done, align, escape)
