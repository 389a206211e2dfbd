"""LibreTranslate's API, as its clients speak it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, Field

from longstride.serving.documents import translate_html, words_of_html
from longstride.serving.downloads import SUFFIXES
from longstride.serving.errors import BadRequestError
from longstride.serving.languages import name_of
from longstride.serving.service import Answer
from longstride.serving.state import ServerState, state_of
from longstride.serving.web import GlossaryField, checked, fields, glossary_of, takes, while_connected
from longstride.text.sentences import has_words

AUTO = "auto"
Language = Annotated[str, Field(max_length=32)]


def _number(value: Any) -> Any:
    """Forms have numbers as text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9 else value


class TranslateRequest(BaseModel):
    """POST /translate"""

    q: str | list[str] = Field(description="Text, or a list of texts")
    source: Language = Field(description="Language code, or auto")
    target: Language = Field(description="Language code")
    format: str = Field(default="text", description="text or html", json_schema_extra={"enum": ["text", "html"]})
    alternatives: Annotated[int, BeforeValidator(_number)] = Field(
        default=0, ge=0, description="How many others to give; with format text"
    )
    glossary: GlossaryField = None
    api_key: str | None = Field(default=None, description="Where the server asks for one")


class TranslateAnswer(BaseModel):
    """Its answer; lists where q is one."""

    translatedText: str | list[str]  # noqa: N815 (LibreTranslate's name)
    alternatives: list[Any] | None = None
    detectedLanguage: Any | None = None  # noqa: N815
    missingTerms: list[Any] | None = Field(  # noqa: N815
        default=None, description="With a glossary: its terms for which no place was found"
    )


class DetectRequest(BaseModel):
    """POST /detect"""

    q: str
    api_key: str | None = None


class Detected(BaseModel):
    """A language, and how sure that is, up to 100."""

    language: str
    confidence: float


class LanguageAnswer(BaseModel):
    """A language and what it can be translated to."""

    code: str
    name: str
    targets: list[str]


router = APIRouter(tags=["LibreTranslate"])


@router.post("/translate", openapi_extra=takes(TranslateRequest), response_model_exclude_none=True)
async def translate(request: Request) -> TranslateAnswer:
    """Translate a text, or several."""
    state = state_of(request)
    asked = checked(TranslateRequest, await fields(request))
    texts = asked.q if isinstance(asked.q, list) else [asked.q]
    state.keys.admit(request, asked.api_key, sum(map(len, texts)))
    if asked.format not in ("text", "html"):
        raise BadRequestError(f"{asked.format[:100]} format is not supported")
    if asked.alternatives and asked.format == "html":
        raise BadRequestError("Invalid request: alternatives are for format text, found html; leave alternatives out")
    state.service.check(texts)
    found = await while_connected(request, _translated(state, asked, texts), state.service.settings.timeout)
    answers, detected = [one for one, _ in found], [one for _, one in found]
    many = isinstance(asked.q, list)
    others = [list(answer.alternatives) for answer in answers]
    lacking = [list(answer.missing) for answer in answers]
    return TranslateAnswer(
        translatedText=[answer.text for answer in answers] if many else answers[0].text,
        alternatives=(others if many else others[0]) if asked.alternatives else None,
        detectedLanguage=None if asked.source != AUTO else detected if many else detected[0],
        missingTerms=None if not any(lacking) else lacking if many else lacking[0],
    )


async def _translated(state: ServerState, asked: TranslateRequest, texts: list[str]) -> list[tuple[Answer, Detected]]:
    """Every text's translation, and its language where that was to be found out, for each by itself."""
    known = state.service.models.languages
    detected: list[tuple[str, float] | None] = [(asked.source, 100.0)] * len(texts)
    if asked.source == AUTO:
        words = await words_of_html(state.service, texts) if asked.format == "html" else texts
        detected = [await state.detector.detect(text, known) for text in words]
    for code in {asked.target, *(one[0] for one in detected if one is not None)}:
        if code not in known:
            raise BadRequestError(f"{code} is not supported")

    glossary = glossary_of(asked.glossary, state.service.settings)
    answers = [Answer(text, 0, 0) for text in texts]
    groups: dict[str, list[int]] = {}
    for place, (text, found) in enumerate(zip(texts, detected, strict=True)):
        if found is not None and found[0] != asked.target and has_words(text):
            groups.setdefault(found[0], []).append(place)
    for source, places in groups.items():
        model = state.service.models.translating(source, asked.target)
        if model is None:
            raise BadRequestError(f"{asked.target} is not supported as a target of {source}")
        some = [texts[place] for place in places]
        if asked.format == "html":
            done = await translate_html(state.service, model, some, glossary)
        else:
            done = await state.service.generate(model, some, alternatives=asked.alternatives, glossary=glossary)
        for place, answer in zip(places, done, strict=True):
            answers[place] = answer
    told = [Detected(language=one[0] if one else "en", confidence=one[1] if one else 0.0) for one in detected]
    return list(zip(answers, told, strict=True))


@router.post("/detect", openapi_extra=takes(DetectRequest))
async def detect(request: Request) -> list[Detected]:
    """Say which language a text is in."""
    state = state_of(request)
    asked = checked(DetectRequest, await fields(request))
    state.keys.admit(request, asked.api_key, len(asked.q))
    state.service.check([asked.q])
    found = await state.detector.detect(asked.q, state.service.models.languages)
    return [Detected(language=found[0] if found else "en", confidence=found[1] if found else 0.0)]


@router.get("/languages")
async def languages(request: Request) -> list[LanguageAnswer]:
    """Languages, and what each can be translated to."""
    models = state_of(request).service.models
    pairs = [(model.spec.source, model.spec.target) for model in models]
    return [
        LanguageAnswer(
            code=code,
            name=name_of(code),
            targets=list(dict.fromkeys([*(target for source, target in pairs if source == code), code])),
        )
        for code in models.languages
    ]


@router.get("/frontend/settings")
async def settings(request: Request) -> dict[str, Any]:
    """What a page has to know."""
    state = state_of(request)
    first = state.service.models.named(None).spec
    return {
        "charLimit": state.service.settings.max_characters,
        "frontendTimeout": 500,
        "apiKeys": state.keys.required,
        "keyRequired": state.keys.required,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": SUFFIXES,
        "language": {
            "source": {"code": first.source, "name": name_of(first.source)},
            "target": {"code": first.target, "name": name_of(first.target)},
        },
    }
