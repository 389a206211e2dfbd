"""Word files: the texts of their paragraphs, and the same file with others in their place."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Sequence
from xml.etree import ElementTree

from longstride.serving.errors import BadRequestError
from longstride.serving.html import check_number

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_WRITTEN_FIELDS = re.compile(r"\s*(?:$|(?:HYPERLINK|TOC|INDEX|QUOTE|FORMTEXT)\b)", re.IGNORECASE)
"""Fields whose text a person wrote, such as links. Word computes the others (page numbers, dates) again."""
_WORD_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
)
"""Errors that Python raises for damaged archives and for other files."""
MOST_UNPACKED = 64 << 20
"""Bytes that a Word file may hold when unpacked."""
MOST_ENTRIES = 2000
MOST_XML = 8 << 20
MOST_MARKS = 400_000
"""Bytes of its XML, and the tags or attributes in it."""
DEEPEST = 200
"""Elements within one another: recursion over them stays far from Python's limit."""
MOST_NAMESPACES = 200
MOST_FIELDS, MOST_OF_FIELD = 20, 100
"""Fields within one another that are looked at, and characters of what each says: Word has no more of them, and files
that are made to take long do."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Methods of compression that Word files may use."""
_Tree = tuple[ElementTree.Element, dict[str, str]]
"""A root, and the prefixes of its namespaces."""


def words(content: bytes) -> str:
    """Return what a file says, paragraph by paragraph."""
    tree, _ = _parsed(_unpacked(content)["word/document.xml"])
    return "\n".join("".join(one.text or "" for one in texts) for texts in _paragraphs(tree))


def paragraphs(content: bytes, most: int) -> list[str]:
    """Return the texts of a file; refuse more than `most`."""
    found = ["".join(one.text or "" for one in texts) for texts in _read(content)[2]]
    check_number(len(found), most)
    return found


def rewritten(content: bytes, answers: Sequence[str]) -> bytes:
    """Return a file with other texts: each takes the form of its paragraph's first run; of the first that was there
    before changes that are tracked, so that it stays when these are turned down."""
    parts, trees, paragraphs = _read(content)
    new = {text for tree, _ in trees.values() for text in _inserted(tree)}
    for texts, answer in zip(paragraphs, answers, strict=True):
        place = next((one for one in texts if one not in new), texts[0])
        for one in texts:
            one.text = answer if one is place else ""
        place.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    return _packed(parts, trees)


def _read(content: bytes) -> tuple[dict[str, bytes], dict[str, _Tree], list[list[ElementTree.Element]]]:
    """Return the files inside, the trees of text files by name, and the texts of all paragraphs."""
    parts = _unpacked(content)
    trees = {name: _parsed(data) for name, data in _texts(parts).items()}
    return parts, trees, [texts for tree, _ in trees.values() for texts in _paragraphs(tree)]


def _unpacked(content: bytes) -> dict[str, bytes]:
    """The files inside; sizes are bounded by what is read, whatever the archive says of itself."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_ENTRIES or sum(entry.file_size for entry in entries) > MOST_UNPACKED:
                raise BadRequestError(f"Invalid request: the file holds more than {MOST_UNPACKED} bytes when unpacked")
            found, left = {}, MOST_UNPACKED
            if any(entry.compress_type not in _METHODS for entry in entries):
                raise NotImplementedError
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
    texts = _texts(found).values()
    if sum(map(len, texts)) > MOST_XML:
        raise BadRequestError(f"Invalid request: the Word file holds more than {MOST_XML} bytes of text and marks")
    if any(sum(data.count(sign) for data in texts) > MOST_MARKS for sign in (b"<", b"=")):
        raise BadRequestError(f"Invalid request: the Word file holds more than {MOST_MARKS} marks or attributes", 413)
    return found


def _texts(parts: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files that hold text."""
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


def _parsed(data: bytes) -> _Tree:
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


def _packed(parts: dict[str, bytes], trees: dict[str, _Tree]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            if name in trees:
                data = _written(*trees[name])
            archive.writestr(name, data)
    return packed.getvalue()
