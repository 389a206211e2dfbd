"""A page of HTML through `longstride translate`: the server's translation of HTML, without a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longstride.cli.streams import STDIN, all_of, is_standard
from longstride.contract import InputError

if TYPE_CHECKING:
    from longstride.contract import Hypothesis, Step
    from longstride.serving.scheduler import Sentence
    from longstride.text.glossary import Glossary
    from longstride.translator import Translator

HTML = "html"
TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>")
"""A tag of HTML."""
LONGEST = 10**8
"""Characters, and as many sentences as these may hold."""
DAY = 86400.0


def translate_page(
    translator: Translator,
    input: Path | None,
    decoder: str | None,
    options: Mapping[str, Any],
    rows: int,
    glossary: Glossary | None,
) -> tuple[str, list[str]]:
    """The translation of the page in a file, and the names of the decoders that ran."""
    from longstride.serving.documents import translate_html
    from longstride.serving.models import Models, ModelSpec
    from longstride.serving.service import Service
    from longstride.serving.settings import ServerSettings

    content = all_of(input)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        told = f"expected UTF-8, found the byte {content[error.start]:#04x} at place {error.start}"
        raise InputError(f"{STDIN if is_standard(input) else input}: {told}.") from None
    settings = ServerSettings(rows=min(rows, 10**4), max_waiting=10**6, max_characters=LONGEST, timeout=DAY)
    spec, ran = ModelSpec(HTML, "", "", lambda: translator, decoder, options=options), _Ran()
    models = Models([spec], settings, lambda model, decoder: ran)
    service = Service(models)
    try:
        [answer] = asyncio.run(translate_html(service, models.named(None), [text], glossary))
    finally:
        service.apart.close()
        models.stop()
        models.join(1.0)
    # A browser may not read a page in ASCII as UTF-8, so it stays in ASCII.
    found = answer.text.encode("ascii", "xmlcharrefreplace").decode() if content.isascii() else answer.text
    return found, list(ran.names)


class _Ran:
    """Hears which decoders ran."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def iteration(self, step: Step, decoder: str) -> None:
        """By this one."""
        self.names[decoder] = None

    def finished(self, sentence: Sentence, hypotheses: list[Hypothesis]) -> None:
        """Is of no interest."""

    def failed(self, why: Exception) -> None:
        """Is told by the answer."""
