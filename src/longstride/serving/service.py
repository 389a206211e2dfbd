"""Texts in, texts out, for whatever protocol asks: split, decoded side by side with everybody else's, joined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import TypeVar

from longstride.contract import Hypothesis, InputError, OptionError
from longstride.contract.decoding import sentence_number
from longstride.serving.apart import Apart
from longstride.serving.errors import BadRequestError, DeadlineError, DrainingError, ServingError
from longstride.serving.lanes import SHORT
from longstride.serving.models import ALTERNATIVES, Models, ServedModel
from longstride.serving.pieces import Work, prepared
from longstride.serving.placings import Placings
from longstride.serving.scheduler import Progress, Scheduler, Sentence
from longstride.terminology import Placing
from longstride.text.glossary import Glossary
from longstride.text.sentences import Piece
from longstride.text.tokenizer import refuse_surrogates
from longstride.translator import Translator

R = TypeVar("R")
MANY = 2000
"""Characters beyond which texts are tokenized beside the event loop."""
WARM_UP = "We would like to thank all those who have worked on this report for such a long time."
"""About as long as sentences are: how long these stay in their rows is what a server knows of its speed at first."""


@dataclass(frozen=True)
class Answer:
    """The output of one text."""

    text: str
    source_tokens: int
    tokens: int
    alternatives: tuple[str, ...] = ()
    decoders: tuple[str, ...] = ()
    """names of the decoders that ran for the request"""
    missing: tuple[str, ...] = ()
    """terms of the glossary for which no place was found"""


@dataclass(frozen=True)
class TranslatedPiece:
    """A piece of a text, and its output; both without ids where there was nothing to translate."""

    piece: Piece
    ids: list[int]
    tokens: list[int]
    text: str


@dataclass(frozen=True)
class _Asked:
    """What is wanted, whichever model does it."""

    texts: Sequence[str]
    deadline: float
    decoder: str | None = None
    whole: bool = False
    glossary: Glossary | None = None
    ran: dict[str, None] = field(default_factory=dict)
    """names of the decoders that ran, once they have"""


class Service:
    """Translates texts with the models of a server. Its methods belong to an event loop, which never waits."""

    def __init__(self, models: Models) -> None:
        self.models, self.settings, self.apart = models, models.settings, Apart()
        self._placings = Placings()

    @property
    def load(self) -> int:
        """Sentences that are decoded or wait, of all models and decoders."""
        schedulers = [one for model in self.models for one in model.schedulers.values()]
        return sum(one.live + one.waiting for one in schedulers)

    async def generate(
        self,
        model: ServedModel,
        texts: Sequence[str],
        decoder: str | None = None,
        timeout: float | None = None,
        whole: bool = False,
        alternatives: int = 0,
        many: bool = False,
        glossary: Glossary | None = None,
    ) -> list[Answer]:
        """The outputs of texts, in order. `whole`: lines are not split into sentences; `many`: there may be
        more than a request may have; `glossary`: beside the model's own."""
        self.check(texts, many)
        deadline = self._deadline(timeout)
        if alternatives > self.settings.max_alternatives:
            raise BadRequestError(
                f"Invalid request: alternatives parameter must be <= {self.settings.max_alternatives}"
            )
        asked = _Asked(texts, deadline, decoder, whole, glossary)
        best = await self._generate(model, asked)
        if not alternatives:
            return best
        others = await self._generate(model, replace(asked, decoder=ALTERNATIVES))
        return [
            Answer(
                one.text,
                one.source_tokens,
                one.tokens,
                tuple(text for text in dict.fromkeys(other.alternatives) if text != one.text)[:alternatives],
                one.decoders,
                one.missing,
            )
            for one, other in zip(best, others, strict=True)
        ]

    def _deadline(self, timeout: float | None = None) -> float:
        return monotonic() + min(timeout or self.settings.timeout, self.settings.timeout)

    def check(self, texts: Sequence[str], many: bool = False) -> None:
        """Refuse too much, and what is no text; `many`: however many there are."""
        if len(texts) > self.settings.max_texts and not many:
            raise BadRequestError(
                f"Invalid request: request ({len(texts)}) exceeds text limit ({self.settings.max_texts})"
            )
        characters = sum(map(len, texts))
        if characters > self.settings.max_characters:
            raise BadRequestError(
                f"Invalid request: request ({characters}) exceeds text limit ({self.settings.max_characters})"
            )
        try:
            for text in texts:
                refuse_surrogates(text)
        except InputError as error:
            raise BadRequestError(f"Invalid request: {error}") from None

    async def _generate(self, model: ServedModel, asked: _Asked) -> list[Answer]:
        model, outputs = await self.taken(model, partial(self._outputs, asked))
        translator = model.translator
        answers = []
        for one, found, missing in outputs:
            best = one.joined(translator.text([hypotheses[0].tokens for hypotheses in found]))
            ranks = min((len(hypotheses) for hypotheses in found), default=0)
            others = [
                one.joined(translator.text([hypotheses[rank].tokens for hypotheses in found]))
                for rank in range(ranks if asked.decoder == ALTERNATIVES else 0)
            ]
            tokens = sum(len(hypotheses[0].tokens) for hypotheses in found)
            answers.append(Answer(best, sum(map(len, one.full)), tokens, tuple(others), tuple(asked.ran), missing))
        return answers

    async def pieces(
        self, model: ServedModel, texts: Sequence[str], glossary: Glossary | None = None
    ) -> tuple[ServedModel, list[list[TranslatedPiece]]]:
        """Texts, however many, in the pieces in which they were translated, and by whom."""
        self.check(texts, many=True)
        asked = _Asked(texts, self._deadline(), glossary=glossary)
        model, outputs = await self.taken(model, partial(self._outputs, asked))
        made = []
        for one, found, _ in outputs:
            rows = iter([list(hypotheses[0].tokens) for hypotheses in found])
            tokens = [None if ids is None else next(rows) for ids in one.ids]
            written = iter(model.translator.text([row for row in tokens if row is not None]))
            made.append(
                [
                    TranslatedPiece(piece, ids or [], row or [], piece.text if row is None else next(written))
                    for piece, ids, row in zip(one.pieces, one.ids, tokens, strict=True)
                ]
            )
        return model, made

    async def taken(self, model: ServedModel, work: Callable[[ServedModel], Awaitable[R]]) -> tuple[ServedModel, R]:
        """What a model makes, and which did: one that was just replaced takes no more. The other begins anew: what it
        reads may be other tokens."""
        try:
            return model, await work(model)
        except DrainingError:
            if (new := self.models.named(model.spec.name)) is model:
                raise
            return new, await work(new)

    async def _outputs(
        self, asked: _Asked, model: ServedModel
    ) -> list[tuple[Work, list[list[Hypothesis]], tuple[str, ...]]]:
        """Return for each text its pieces, their outputs, and glossary terms without a place."""
        decoder, deadline = asked.decoder, asked.deadline
        if (known := model.known(decoder)) is not None and not known.draining:
            known.check_room([1], deadline)  # before anything is done for it
        work = await self._prepared(model.translator, asked.texts, asked.whole)
        ids = [row for one in work for row in one.full]
        led = await self._led(model, decoder, [line for one in work for line in one.lines], ids, asked.glossary)
        numbers = [  # as `translate` counts them
            sentence_number(text, part)
            for text, one in enumerate(work)
            for part, row in enumerate(one.ids)
            if row is not None
        ]
        outputs = iter(enumerate(await self._settled(model, decoder, ids, deadline, led, numbers, asked.ran)))
        told = []
        for one in work:
            some = [next(outputs) for _ in one.full]
            missing = (term for number, _ in some if number in led for term in led[number].missing)
            told.append((one, [found for _, found in some], tuple(dict.fromkeys(missing))))
        return told

    async def _prepared(self, translator: Translator, texts: Sequence[str], whole: bool) -> list[Work]:
        make = partial(prepared, translator, texts, translator.longest if whole else self.settings.split_above)
        return make() if sum(map(len, texts)) <= MANY else await asyncio.to_thread(make)

    async def scheduler(self, model: ServedModel, decoder: str | None, prefixes: bool = False) -> Scheduler:
        """Of a decoder, which may have to be made."""
        known = model.known(decoder, prefixes)
        return known if known is not None else await asyncio.to_thread(model.scheduler, decoder, prefixes)

    async def _led(
        self,
        model: ServedModel,
        decoder: str | None,
        lines: Sequence[str],
        ids: Sequence[Sequence[int]],
        glossary: Glossary | None,
    ) -> dict[int, Placing]:
        """What leads outputs of lines to hold the terms that they should, by number."""
        if glossary is None and model.glossary is None:
            return {}
        scheduler = await self.scheduler(model, decoder)
        if "prefixes" not in scheduler.obeys:
            if glossary is None:  # the model's own is for decoders that can
                return {}
            raise BadRequestError(f"A glossary expects another decoder, such as greedy or beam, found {decoder}.")
        every = model.glossary.joined(glossary) if model.glossary is not None else glossary
        assert every is not None
        translator = model.translator

        def placing() -> dict[int, Placing]:
            if glossary is not None:
                translator.placer.check(glossary)
            return translator.placing(every, dict(enumerate(map(translator.readable, lines))), ids, scheduler.limits)

        try:
            return await asyncio.to_thread(placing)
        except OptionError as error:
            raise BadRequestError(str(error)) from None

    async def _settled(
        self,
        model: ServedModel,
        decoder: str | None,
        ids: Sequence[list[int]],
        deadline: float,
        led: dict[int, Placing],
        numbers: Sequence[int] = (0,),
        ran: dict[str, None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Outputs that lack a term come again, with a prefix that has it, until none does. `numbers` are those of the
        sentences within their request; `ran` gets the names of the decoders."""
        outputs = await self._decoded(model, decoder, ids, deadline, numbers=numbers, ran=ran)
        again = list(led)
        while again:
            async with _before(deadline):
                found = await self._placings.prefixes(model, {one: (led[one], outputs[one][0].tokens) for one in again})
            again = list(found)
            begun, rows, own = list(found.values()), [ids[one] for one in again], [numbers[one] for one in again]
            came = await self._decoded(model, decoder, rows, deadline, begun, numbers=own)
            for one, new in zip(again, came, strict=True):
                outputs[one] = new
        return outputs

    async def _decoded(
        self,
        model: ServedModel,
        decoder: str | None,
        ids: Sequence[list[int]],
        deadline: float,
        prefixes: Sequence[Sequence[int]] = (),
        numbers: Sequence[int] | None = None,
        ran: dict[str, None] | None = None,
    ) -> list[list[Hypothesis]]:
        if not ids:
            return []
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[list[Hypothesis]]] = [loop.create_future() for _ in ids]
        sentences = [
            Sentence(
                row,
                deadline,
                partial(_tell, loop, partial(_settle, future)),
                number=number,
                prefix=prefix,
                named=decoder is not None,
            )
            for number, row, future, prefix in zip(
                range(len(ids)) if numbers is None else numbers, ids, futures, prefixes or [()] * len(ids), strict=True
            )
        ]
        scheduler = await self._submitted(model, decoder, sentences, bool(prefixes))
        try:
            async with _before(deadline):
                found = await asyncio.gather(*futures)
            if ran is not None:
                ran.update(dict.fromkeys(one.decoder for one in sentences))
            return found
        finally:
            if left := [one for one in sentences if not one.over]:
                scheduler.cancel(left)
            for future in futures:  # whose errors nobody will ask for
                if future.done() and not future.cancelled():
                    future.exception()

    async def _submitted(
        self, model: ServedModel, decoder: str | None, sentences: Sequence[Sentence], prefixes: bool = False
    ) -> Scheduler:
        """Submit sentences to the scheduler of a decoder, and return it."""
        try:
            (scheduler := await self.scheduler(model, decoder, prefixes)).submit(sentences)
        except DrainingError:  # of a decoder that others took the place of, there is a new one; of a model there is not
            (scheduler := await self.scheduler(model, decoder, prefixes)).submit(sentences)
        return scheduler

    async def events(
        self,
        model: ServedModel,
        text: str,
        decoder: str | None = None,
        timeout: float | None = None,
        glossary: Glossary | None = None,
        ran: dict[str, None] | None = None,
    ) -> AsyncGenerator[tuple[Progress | None, list[Hypothesis]], None]:
        """What each iteration did to one text, which is translated as one sentence; at the end, its outputs. Of one
        with a glossary's terms these alone: an output that lacks a term comes again. `ran` gets the decoder's name."""
        self.check([text])
        deadline = self._deadline(timeout)
        [ids] = model.translator.encode([text], warn=lambda message: None)
        if led := await self._led(model, decoder, [text], [ids], glossary):
            [found] = await self._settled(model, decoder, [ids], deadline, led, ran=ran)
            yield None, found
            return
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Progress | list[Hypothesis] | ServingError]()
        tell = partial(_tell, loop, queue.put_nowait)
        sentence = Sentence(ids, deadline, tell, watch=tell, named=decoder is not None)
        scheduler = await self._submitted(model, decoder, [sentence])
        try:
            while True:
                async with _before(deadline):
                    told = await queue.get()
                if isinstance(told, ServingError):
                    raise told
                if isinstance(told, list):
                    if ran is not None:
                        ran[sentence.decoder] = None
                    yield None, told
                    return
                yield told, []
        finally:
            if not sentence.over:
                scheduler.cancel([sentence])

    async def warm_up(self) -> None:
        """Translate something in tables of every size, so that no request waits for what is made once; in the largest
        so much that some of it has to wait, and where encoders are recorded by widths something long as well. How long
        sentences stay in their rows is measured once all is made: the first ones waited for kernels."""
        for model in self.models:
            [ids] = model.translator.encode([WARM_UP])
            longest = min(SHORT, model.translator.longest) - 1
            first = [*(ids[:-1] * longest)[:longest], ids[-1]] if model.translator.runner.records else ids
            most = 2 * self.settings.rows
            for number in (1, 1, 1, 1, 2, 5, most, most):  # by itself so often as there may be ways to
                (await self.scheduler(model, None)).forget_times()
                some = [first, *[ids] * (number - 1)] if number > 1 else [ids]
                await self._decoded(model, None, some[: self.settings.max_waiting], monotonic() + 600)


@asynccontextmanager
async def _before(deadline: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(max(0.0, deadline - monotonic())):
            yield
    except TimeoutError:
        raise DeadlineError("The time for this request was over before it was done.") from None


def _settle(future: asyncio.Future[list[Hypothesis]], told: list[Hypothesis] | ServingError) -> None:
    if not future.done():
        if isinstance(told, ServingError):
            future.set_exception(told)
        else:
            future.set_result(told)


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., None], told: object) -> None:
    """From another thread; a loop that has ended has nobody to be told."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, told)
