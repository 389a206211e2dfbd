"""HTML whose text is translated and whose tags stay where they are, character by character.

Each run of text between two tags is translated by itself. What is in a script, a style, code or an element that says
``translate="no"`` (or has the class ``notranslate``) stays as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from longstride.serving.models import ServedModel
from longstride.serving.service import Answer, Service
from longstride.text.glossary import Glossary

_TAG = re.compile(
    r"""(<!--.*?(?:-->|\Z)|<[!?][^>]*+(?:>|\Z)|"""
    r"""</?[A-Za-z][^\s/>"'<]*+(?:"[^"]*+"|'[^']*+'|[^'"<>])*+(?:>|"[^"]*+\Z|'[^']*+\Z))""",
    re.DOTALL,
)
"""Nothing is tried twice (`*+`), and a quote that is not closed goes to the end: no page takes long to be read."""
_NAME = re.compile(r"<(/?)([A-Za-z][^\s/>]*)")
_KEPT = frozenset(("script", "style", "code", "pre", "textarea", "template", "svg", "math", "kbd", "samp", "var"))
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
_NO = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)


@dataclass(frozen=True)
class Run:
    """A part of a document: text to translate, or what stays."""

    text: str
    translated: bool


def runs(document: str) -> list[Run]:
    """A document in parts; joined, they are the document."""
    found: list[Run] = []
    kept: list[str] = []  # names of open elements, from the first on that is not to be translated
    for number, part in enumerate(_TAG.split(document)):
        if number % 2 == 0:
            found.append(Run(part, not kept and any(sign.isalnum() for sign in html.unescape(part))))
            continue
        found.append(Run(part, False))
        if (name := _NAME.match(part)) is None:
            continue
        element = name[2].lower()
        if name[1]:
            if element in kept:
                del kept[len(kept) - 1 - kept[::-1].index(element) :]
        elif element not in _VOID and not part.endswith("/>") and (kept or element in _KEPT or _NO.search(part)):
            kept.append(element)
    return [run for run in found if run.text]


async def translate_html(
    service: Service, model: ServedModel, documents: Sequence[str], glossary: Glossary | None = None
) -> list[Answer]:
    """Documents with their texts translated, together."""
    parts = [runs(document) for document in documents]
    texts = [html.unescape(run.text) for one in parts for run in one if run.translated]
    answers = iter(await service.generate(model, texts, many=True, glossary=glossary))
    done = []
    for one in parts:
        found = [next(answers) if run.translated else None for run in one]
        text = "".join(
            run.text if answer is None else html.escape(answer.text, quote=False)
            for run, answer in zip(one, found, strict=True)
        )
        full = [answer for answer in found if answer is not None]
        done.append(Answer(text, sum(a.source_tokens for a in full), sum(a.tokens for a in full)))
    return done
