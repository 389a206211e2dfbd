"""The models of a server, each with a scheduler for every decoder that was asked for.

A model folder that has changed on disk is opened anew beside the old one; requests go on with whichever they began
with, and the old one ends when its last sentence is done.
"""

from __future__ import annotations

import ctypes
import gc
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from longstride.contract import OptionError
from longstride.model_folder import ModelFolder
from longstride.serving.errors import BadRequestError
from longstride.serving.languages import NAMES
from longstride.serving.scheduler import Scheduler, Watcher
from longstride.serving.settings import ServerSettings
from longstride.serving.turns import Turns
from longstride.text.glossary import Glossary
from longstride.translator import Translator

_PAIR = re.compile(r"(?:^|(?<=[-_.]))(?=([a-z]{2,3})-([a-z]{2,3})(?:$|[-_.]))")
ALTERNATIVES = "alternatives"
"""Stands for beam search with several outputs."""
PREFIXED = " with terms"
"""Behind a decoder's name: its scheduler for sentences whose outputs begin with what is prescribed."""


@dataclass(frozen=True)
class ModelSpec:
    """What a server is to know of a model before it is opened."""

    name: str
    source: str
    """language"""
    target: str
    open: Callable[[], Translator]
    decoder: str | None = None
    """the one that requests get that name none; None: the model's own"""
    glossary: Callable[[], Glossary] | None = None
    """reads what terms are called in all its outputs"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """options of the default decoder"""


def languages_of(name: str) -> tuple[str, str] | None:
    """The languages that the name of a folder tells: ``opus-mt-en-de``, ``en-de-base``."""
    pairs = [(found[1], found[2]) for found in _PAIR.finditer(name)]
    known = [pair for pair in pairs if NAMES.keys() >= set(pair)]
    return next(iter([*known, *pairs]), None)


class ServedModel:
    """An open model folder, and the schedulers of its decoders."""

    def __init__(
        self,
        spec: ModelSpec,
        settings: ServerSettings,
        turns: Turns,
        watch: Callable[[str, str], Watcher] | None = None,
    ) -> None:
        """Opens it. `watch`: makes who counts what is done, by names of model and decoder."""
        self.spec, self.translator = spec, spec.open()
        self._settings, self.turns, self._watch = settings, turns, watch
        self._schedulers: dict[str, Scheduler] = {}
        self._leaving: list[Scheduler] = []
        self._making = threading.Lock()
        self._draining = self.stopped = False
        decoder, _ = self.translator.decoder(spec.decoder, **spec.options)  # what cannot be served is refused now
        self.glossary = None if spec.glossary is None else self.translator.glossary(spec.glossary(), decoder)
        self.scheduler(None)

    @cached_property
    def decoders(self) -> list[str]:
        """What requests may name, the default first. Finding out takes hashes of tokenizers."""
        names = [*self.translator.decoders, *self.translator.possible]
        default = self.spec.decoder or names[0]
        return [default, *(name for name in names if name != default)]

    def check_decoder(self, name: str) -> None:
        """Refuse one that there is not; schedulers have more names than decoders, which are no request's to use."""
        if name not in self.decoders:
            raise BadRequestError(
                f"The model {self.spec.name} has no decoder {name!r}; it has {', '.join(self.decoders)}."
            )

    @property
    def schedulers(self) -> Mapping[str, Scheduler]:
        """Those that were asked for, by decoder."""
        return dict(self._schedulers)

    def known(self, decoder: str | None, prefixes: bool = False) -> Scheduler | None:
        """The scheduler of a decoder, if it was asked for before."""
        return self._schedulers.get(self._key(decoder, prefixes))

    def _key(self, decoder: str | None, prefixes: bool) -> str:
        return (decoder or self.decoders[0]) + (PREFIXED if prefixes else "")

    def scheduler(self, decoder: str | None, prefixes: bool = False) -> Scheduler:
        """The scheduler of a decoder, for sentences with `prefixes` another one. The first time, weights are read,
        which takes its time."""
        name = self._key(decoder, prefixes)
        with self._making:
            if name not in self._schedulers:
                self._schedulers[name] = self._made(decoder or self.decoders[0], prefixes)
                self._retire(name)
                if self._draining:  # looked at behind that: whoever drains meanwhile sees the one or the other
                    self._schedulers[name].drain()
            return self._schedulers[name]

    def _retire(self, new: str) -> None:
        """Have decoders end that were unused longest, beside the model's own and a `new` one, if there are too many."""
        others = [name for name in self._schedulers if name not in (new, self.decoders[0])]
        others.sort(key=lambda name: self._schedulers[name].used)
        for name in others[: max(0, len(others) + 1 - self._settings.max_decoders)]:
            one = self._schedulers.pop(name)
            self._leaving.append(one)
            one.drain()
            threading.Thread(target=self._released, args=(one,), name="longstride-release", daemon=True).start()

    def _released(self, leaving: Scheduler) -> None:
        """Give back what only this one used, once it is done."""
        leaving.join()
        with self._making:
            self._leaving.remove(leaving)
            names = [name.removesuffix(PREFIXED) for name in self._schedulers]
            used = {"beam" if name == ALTERNATIVES else name for name in names} | {one.decoder for one in self._leaving}
            self.translator.release(used)
        gc.collect()
        with suppress(OSError, AttributeError):  # what Python gave up, the C library would keep
            ctypes.CDLL(None).malloc_trim(0)

    def _made(self, name: str, prefixes: bool) -> Scheduler:
        settings, runner = self._settings, self.translator.runner
        usual = name == self.decoders[0]
        options = self.spec.options if usual else {}
        watched = name
        if name == ALTERNATIVES:
            most = settings.max_alternatives + 1
            name, options = "beam", {"width": max(4, most), "n_best": most}
        else:
            self.check_decoder(name)
        try:
            decoder, limits = self.translator.batched_decoder(name, **options)
            alone, _ = self.translator.lone_decoder(self.spec.decoder if usual else name, **options)
            return Scheduler(
                decoder,
                limits,
                self.translator.longest,
                settings.rows,
                settings.max_waiting,
                settings.max_tokens,
                grouped=not runner.shape_invariant,
                turns=self.turns,
                watcher=None if self._watch is None or prefixes else self._watch(self.spec.name, watched),
                never_next=self.translator.placer.never_next if prefixes else None,
                alone=None if prefixes else alone,
            )
        except OptionError as error:
            raise BadRequestError(str(error)) from error

    def drain(self) -> None:
        """Finish what was begun, and refuse the rest."""
        self._draining = True
        for scheduler in self.schedulers.values():
            scheduler.drain()

    def stop(self) -> None:
        """End now."""
        self._draining = self.stopped = True
        for scheduler in [*self.schedulers.values(), *self._leaving]:
            scheduler.stop()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the schedulers' threads; whether they have ended."""
        ended = [scheduler.join(timeout) for scheduler in [*self.schedulers.values(), *self._leaving]]
        return all(ended)


class Models:
    """All models of a server, by name. They share a device, and take turns."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        settings: ServerSettings | None = None,
        watch: Callable[[str, str], Watcher] | None = None,
    ) -> None:
        self.settings, self._watch, self._turns = settings or ServerSettings(), watch, Turns()
        if len({spec.name for spec in specs}) < len(specs):
            raise OptionError(f"--model expects different names, found {', '.join(spec.name for spec in specs)}.")
        self._open = {spec.name: self._opened(spec) for spec in specs}
        self._old: list[ServedModel] = []
        self._reloading = threading.Lock()

    def _opened(self, spec: ModelSpec) -> ServedModel:
        return ServedModel(spec, self.settings, self._turns, self._watch)

    def __iter__(self) -> Iterator[ServedModel]:
        """Over the models, the default first."""
        return iter(list(self._open.values()))

    def named(self, name: str | None) -> ServedModel:
        """By name; the first one where none is told."""
        found = self._open.get(name) if name is not None else next(iter(self._open.values()))
        if found is None:
            raise BadRequestError(f"There is no model {name!r}. Available: {', '.join(self._open)}.", status=404)
        return found

    def translating(self, source: str, target: str) -> ServedModel | None:
        """The first one from a language to another."""
        return next((model for model in self if (model.spec.source, model.spec.target) == (source, target)), None)

    @property
    def languages(self) -> list[str]:
        """Codes of all languages, those that are translated first."""
        specs = [model.spec for model in self]
        return list(dict.fromkeys([spec.source for spec in specs] + [spec.target for spec in specs]))

    @property
    def room(self) -> int:
        """Sentences that the one with most room would still take."""
        known = [model.known(None) for model in self]
        return max(self.settings.max_waiting if one is None else one.room(self.settings.timeout) for one in known)

    def reload(self) -> list[str]:
        """Open every folder anew that has changed on disk, or whose glossary has, and let the old ones end; names of
        those."""
        changed = []
        with self._reloading:  # each of two at once would open what has changed, and one would never be closed
            for name, old in list(self._open.items()):
                folder = old.translator.folder
                read, glossary = old.spec.glossary, old.glossary
                other = read is not None and glossary is not None and read().sha256 != glossary.sha256
                if other or ModelFolder(folder.path).config != folder.config:
                    self._open[name] = self._opened(old.spec)
                    old.drain()
                    self._old.append(old)
                    changed.append(name)
        # What was begun is done within the time of a request; from then on nobody needs the old weights.
        ended = [one for one in list(self._old) if one.join(self.settings.timeout)]
        with self._reloading:
            self._old = [one for one in self._old if one not in ended]
        return changed

    def drain(self) -> None:
        """Finish what was begun, and refuse the rest."""
        for model in [*self._open.values(), *self._old]:
            model.drain()

    def stop(self) -> None:
        """End now."""
        for model in [*self._open.values(), *self._old]:
            model.stop()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for all threads; whether they have ended."""
        ended = [model.join(timeout) for model in [*self._open.values(), *self._old]]
        return all(ended)
