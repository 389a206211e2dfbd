"""Files whose text is translated and whose form stays: plain text, subtitles, HTML, Word."""

from __future__ import annotations

import asyncio
import io
import re
import zipfile
from functools import partial
from itertools import pairwise
from xml.etree import ElementTree

from longstride.serving.errors import BadRequestError
from longstride.serving.html import translate_html
from longstride.serving.models import ServedModel
from longstride.serving.service import Service

_CUE = re.compile(r"(?m)^(?:\d+[ \t]*\r?\n)?[^\n]*-->[^\n]*(?:\r?\n|\Z)")
"""A subtitle's number and times"""
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_WORD_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
MOST_UNPACKED = 64 << 20
"""Bytes that a Word file may hold when unpacked."""
MOST_ENTRIES = 2000


async def translate_document(service: Service, model: ServedModel, suffix: str, content: bytes) -> bytes:
    """A file of a kind, translated."""
    if suffix == ".docx":
        return await _docx(service, model, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"Invalid request: the file is not UTF-8 at byte {error.start}") from None
    if suffix in (".html", ".htm"):
        [answer] = await translate_html(service, model, [text])
        return answer.text.encode()
    if suffix == ".srt":
        return (await _srt(service, model, text)).encode()
    [answer] = await service.generate(model, [text])
    return answer.text.encode()


async def _srt(service: Service, model: ServedModel, text: str) -> str:
    """Subtitles: the lines of each are one text, numbers and times stay."""
    heads = [found.span() for found in _CUE.finditer(text)]
    borders = [0, *(place for span in heads for place in span), len(text)]
    parts = [text[first:last] for first, last in pairwise(borders)]
    said = parts[::2]
    cores = [" ".join(part.split()) for part in said]
    answers = await service.generate(model, cores, many=True)
    done = list(parts)
    for place, (part, core, answer) in enumerate(zip(said, cores, answers, strict=True)):
        if core:
            stripped = part.strip()
            start = part.index(stripped)
            done[2 * place] = part[:start] + answer.text + part[start + len(stripped) :]
    return "".join(done)


async def _docx(service: Service, model: ServedModel, content: bytes) -> bytes:
    """A Word file: each paragraph is one text, which takes the form of the paragraph's first run."""
    parts = await asyncio.to_thread(_unpacked, content)
    trees, paragraphs = {}, []
    for name, data in parts.items():
        if _WORD_PARTS.fullmatch(name):
            trees[name] = tree = await asyncio.to_thread(_parsed, data)
            paragraphs += [texts for one in tree.iter(f"{_WORD}p") if (texts := list(one.iter(f"{_WORD}t")))]
    answers = await service.generate(model, ["".join(t.text or "" for t in texts) for texts in paragraphs], many=True)
    for texts, answer in zip(paragraphs, answers, strict=True):
        texts[0].text = answer.text
        texts[0].set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
        for other in texts[1:]:
            other.text = ""
    return await asyncio.to_thread(partial(_packed, parts, trees))


def _unpacked(content: bytes) -> dict[str, bytes]:
    """The files inside; sizes are bounded by what is read, whatever the archive says of itself."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_ENTRIES or sum(entry.file_size for entry in entries) > MOST_UNPACKED:
                raise BadRequestError(f"Invalid request: the file holds more than {MOST_UNPACKED} bytes when unpacked")
            found, left = {}, MOST_UNPACKED
            for entry in entries:
                with archive.open(entry) as file:
                    found[entry.filename] = file.read(left + 1)
                left -= len(found[entry.filename])
                if left < 0:
                    raise BadRequestError("Invalid request: the file is larger than it says")
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, ValueError) as error:
        raise BadRequestError("Invalid request: the file is no Word file") from error
    if "word/document.xml" not in found:
        raise BadRequestError("Invalid request: the file is no Word file")
    return found


def _parsed(data: bytes) -> ElementTree.Element:
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data or b"\x00" in data:  # no entities, in no encoding that hides them
        raise BadRequestError("Invalid request: the Word file defines entities, which none needs")
    try:
        for _, (prefix, address) in ElementTree.iterparse(io.BytesIO(data), events=["start-ns"]):
            if not re.fullmatch(r"ns\d+", prefix):
                ElementTree.register_namespace(prefix, address)
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise BadRequestError("Invalid request: the Word file holds no sound XML") from error


def _packed(parts: dict[str, bytes], trees: dict[str, ElementTree.Element]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            if name in trees:
                data = ElementTree.tostring(trees[name], encoding="UTF-8", xml_declaration=True)
            archive.writestr(name, data)
    return packed.getvalue()
