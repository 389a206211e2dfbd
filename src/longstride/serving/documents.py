"""Files whose text is translated and whose form stays: plain text, subtitles, HTML, Word."""

from __future__ import annotations

import asyncio
import codecs
import html
import io
import lzma
import re
import threading
import zipfile
import zlib
from functools import partial
from itertools import pairwise
from xml.etree import ElementTree

from longstride.serving.errors import BadRequestError
from longstride.serving.html import html_words, translate_html
from longstride.serving.models import ServedModel
from longstride.serving.service import Service

_CUE = re.compile(r"(?m)^(?:(?:\d+[ \t]*\r?\n)?[^\n]*-->[^\n]*(?:\r?\n|\Z)|[ \t]*[-–—][ \t]*(?=[^\s-]))")
"""A subtitle's number and times, and the dash before what each of several people says"""
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_WRITTEN_FIELDS = re.compile(r"\s*(?:$|(?:HYPERLINK|TOC|INDEX|QUOTE|FORMTEXT)\b)", re.IGNORECASE)
"""Fields whose text somebody wrote, links say; Word writes others (page numbers, dates) anew whenever it likes to."""
_WORD_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
)
"""What archives that are none, or no longer whole, make Python raise."""
MOST_UNPACKED = 64 << 20
"""Bytes that a Word file may hold when unpacked."""
MOST_ENTRIES = 2000
MOST_XML = 8 << 20
"""Bytes of its text with all marks, each of which takes memory and time."""
DEEPEST = 200
"""Elements within one another: whoever walks them by recursion stays far from Python's limit."""
MOST_NAMESPACES = 200
MOST_FIELDS, MOST_OF_FIELD = 20, 100
"""Fields within one another that are looked at, and characters of what each says: Word has no more of them, and files
that are made to take long do."""
_NAMES = threading.Lock()
"""Prefixes are kept by Python for all documents: one is written at a time."""


async def translate_document(service: Service, model: ServedModel, suffix: str, content: bytes) -> bytes:
    """A file of a kind, translated."""
    if suffix == ".docx":
        return await _docx(service, model, content)
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
        return mark + (await _srt(service, model, text)).encode()
    [answer] = await service.generate(model, [text])
    return mark + answer.text.encode()


async def words_of(suffix: str, content: bytes) -> str:
    """What a file says, without its marks, for whoever wants to know its language."""
    if suffix == ".docx":
        return await asyncio.to_thread(_words_of_docx, content)
    text = content.decode("utf-8", "ignore")
    return html_words(text) if suffix == ".html" else text


def _words_of_docx(content: bytes) -> str:
    tree, _ = _parsed(_unpacked(content)["word/document.xml"])
    return "\n".join("".join(one.text or "" for one in texts) for texts in _paragraphs(tree))


async def _srt(service: Service, model: ServedModel, text: str) -> str:
    """Subtitles: the lines of each are one text, or one for each who speaks; numbers and times stay; tags go with their
    words, as in HTML, of which subtitles have nothing else."""
    heads = [found.span() for found in _CUE.finditer(text)]
    borders = [0, *(place for span in heads for place in span), len(text)]
    parts = [text[first:last] for first, last in pairwise(borders)]
    said = parts[::2]
    cores = [" ".join(part.split()) for part in said]
    answers = await translate_html(service, model, [core.replace("&", "&amp;") for core in cores])
    done = list(parts)
    for place, (part, core, answer) in enumerate(zip(said, cores, answers, strict=True)):
        if core:
            stripped = part.strip()
            start = part.index(stripped)
            done[2 * place] = part[:start] + html.unescape(answer.text) + part[start + len(stripped) :]
    return "".join(done)


async def _docx(service: Service, model: ServedModel, content: bytes) -> bytes:
    """A Word file: each paragraph is one text, which takes the form of the paragraph's first run; of the first that was
    there before changes that are tracked, so that it stays when these are turned down."""
    parts = await asyncio.to_thread(_unpacked, content)
    trees, paragraphs, new = {}, [], set[ElementTree.Element]()
    for name, data in _texts(parts).items():
        trees[name] = tree, _ = await asyncio.to_thread(_parsed, data)
        paragraphs += await asyncio.to_thread(_paragraphs, tree)
        new |= await asyncio.to_thread(_inserted, tree)
    answers = await service.generate(model, ["".join(t.text or "" for t in texts) for texts in paragraphs], many=True)
    for texts, answer in zip(paragraphs, answers, strict=True):
        place = next((one for one in texts if one not in new), texts[0])
        for one in texts:
            one.text = answer.text if one is place else ""
        place.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
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
    except _DAMAGED as error:
        raise BadRequestError("Invalid request: the file is no Word file") from error
    if "word/document.xml" not in found:
        raise BadRequestError("Invalid request: the file is no Word file")
    if sum(map(len, _texts(found).values())) > MOST_XML:
        raise BadRequestError(f"Invalid request: the Word file holds more than {MOST_XML} bytes of text and marks")
    return found


def _texts(parts: dict[str, bytes]) -> dict[str, bytes]:
    """Those with text in them."""
    return {name: data for name, data in parts.items() if _WORD_PARTS.fullmatch(name)}


def _paragraphs(tree: ElementTree.Element) -> list[list[ElementTree.Element]]:
    """The texts of each; a paragraph in a paragraph (a box of text) is one by itself, and so is what stands between
    tabs, line breaks and fields that Word writes. What was moved elsewhere stays as it is, as what was deleted does."""
    found: list[list[list[ElementTree.Element]]] = []
    fields: list[str] = []  # what those say that are open here; they go over paragraphs, and have others in them
    waiting: list[tuple[ElementTree.Element, list[list[ElementTree.Element]] | None]] = [(tree, None)]
    while waiting:
        element, paragraph = waiting.pop()
        name = element.tag.removeprefix(_WORD)
        if name == "p":
            paragraph = [[]]
            found.append(paragraph)
        elif name == "moveFrom":
            continue
        elif name == "fldChar":
            kind = element.get(f"{_WORD}fldCharType")
            fields += [""] * (kind == "begin")
            del fields[len(fields) - (kind == "end") :]
        elif name == "instrText" and fields:
            fields[-1] = (fields[-1] + (element.text or ""))[:MOST_OF_FIELD]
        elif paragraph is not None:
            own = [element.get(f"{_WORD}instr", "")] if name == "fldSimple" else fields[-MOST_FIELDS:]
            by_word = name in ("t", "fldSimple") and not all(map(_WRITTEN_FIELDS.match, own))
            if by_word or name in ("tab", "ptab", "br", "cr"):
                paragraph.append([])
            elif name == "t":
                paragraph[-1].append(element)
            if by_word:
                continue
        waiting += [(child, paragraph) for child in reversed(element)]
    texts = [some for paragraph in found for some in paragraph]
    return [some for some in texts if any(sign.isalnum() for one in some for sign in one.text or "")]


def _inserted(tree: ElementTree.Element) -> set[ElementTree.Element]:
    """The texts that are gone when tracked changes are turned down."""
    found: set[ElementTree.Element] = set()
    waiting = [(tree, False)]
    while waiting:
        element, new = waiting.pop()
        if new and element.tag == f"{_WORD}t":
            found.add(element)
        new = new or element.tag in (f"{_WORD}ins", f"{_WORD}moveTo")
        waiting += [(child, new) for child in element]
    return found


def _parsed(data: bytes) -> tuple[ElementTree.Element, dict[str, str]]:
    """The root, and the prefixes of its namespaces."""
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data or b"\x00" in data:  # no entities, in no encoding that hides them
        raise BadRequestError("Invalid request: the Word file defines entities, which none needs")
    prefixes: dict[str, str] = {}
    depth = 0
    reading = ElementTree.iterparse(io.BytesIO(data), events=["start", "end", "start-ns"])
    try:
        for event, told in reading:
            if event == "start-ns":
                prefixes[told[0]] = told[1]
            else:
                depth += 1 if event == "start" else -1
            if depth > DEEPEST or len(prefixes) > MOST_NAMESPACES:
                raise BadRequestError("Invalid request: the Word file holds marks that are nested too deeply")
        root: ElementTree.Element = reading.root  # type: ignore[attr-defined]
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # an encoding that there is not, say
        raise BadRequestError("Invalid request: the Word file holds no sound XML") from error
    return root, prefixes


def _written(root: ElementTree.Element, prefixes: dict[str, str]) -> bytes:
    """With the prefixes that the document had; nothing of them is left for the next one."""
    known: dict[str, str] = ElementTree._namespace_map  # type: ignore[attr-defined]
    with _NAMES:
        before = dict(known)
        try:
            own = {prefix: address for prefix, address in prefixes.items() if not re.fullmatch(r"ns\d+", prefix)}
            for prefix, address in own.items():
                ElementTree.register_namespace(prefix, address)
            # Python declares what tags and attributes use. Word names prefixes in values as well (mc:Ignorable), and
            # takes a file for broken that does not declare them.
            names = (name for element in root.iter() for name in (element.tag, *element.attrib))
            used = {name[1:].partition("}")[0] for name in names if name.startswith("{")}
            for prefix, address in own.items():
                if prefix and not (address in used and known[address] == prefix):
                    root.set(f"xmlns:{prefix}", address)
            return bytes(ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True))
        finally:
            known.clear()
            known.update(before)


def _packed(parts: dict[str, bytes], trees: dict[str, tuple[ElementTree.Element, dict[str, str]]]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            if name in trees:
                data = _written(*trees[name])
            archive.writestr(name, data)
    return packed.getvalue()
