"""A loaded model folder: its parts, made when first asked for, and the decoders it offers, by name and options.

Knows its tokenizers' vocabularies and no text; that is the translator's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from torch import nn

from longstride.contract import Decoder, Likelihood, Limits, ModelFolderError, OptionError, Runner, SpecialIds
from longstride.contract.options import as_dict
from longstride.contract.suggestions import meant
from longstride.model_folder import DecoderConfig, ModelFolder
from longstride.registry import (
    DECODERS,
    HOW_MUCH,
    amounts_asked,
    check_decoder,
    check_folder,
    find,
    part_builder,
    split_options,
)
from longstride.runtime.choosing import fastest_batch, some_seconds
from longstride.search.options import BeamOptions
from longstride.systems.autoregressive.decoder import Beam
from longstride.text.corpus import Portion
from longstride.verification.acceptance import OF_DRAFTS
from longstride.verification.draft_policy import LengthFile
from longstride.verification.fastest import Fastest, OneByOne
from longstride.verification.session import VerifyingDecoder

GREEDY, DRAFTED = "greedy", "draft-verify"
"""The decoder that drafts nothing, and the one that drafts by a model."""
DRAFTER = "drafter"
"""A kind of part, and the role that it plays."""
SHORTLIST = "shortlist"
"""The same, and one that a drafter can do without."""
FEW = 4
"""Up to this many sentences may be faster one by one with drafts than side by side."""
KEPT_DECODERS = 64
"""Decoders that are kept made, by name and options."""


class LoadedModel:
    """A model folder on a device; another folder's drafter may draft for it."""

    lengths: Callable[[list[str]], LengthFile] | None = None
    """where draft lengths that decoders measure (adaptive) are kept, by the identities of the folders in use"""

    def __init__(self, folder: ModelFolder, runner: Runner, drafter: ModelFolder | None = None) -> None:
        self.folder = folder
        self.runner = runner
        self.source_tokenizer, self.target_tokenizer = folder.tokenizers()
        self._parts: dict[str, nn.Module] = {}
        self._homes = {name: (folder, name) for name in folder.parts}  # where a part's weights lie, and under what name
        self._decoders = dict(folder.decoders)
        self._checked: set[str] = set()  # decoders whose options were found to be right
        self._made: dict[Hashable, tuple[Decoder, Limits]] = {}  # by name and options: making one takes a millisecond
        self._default = folder.config.default_decoder
        self._language: dict[str, Any] = {}  # limits that the target's language asks for
        check_folder(folder, self.source_tokenizer, self.target_tokenizer)
        if drafter is not None:
            self._take_drafter(drafter)

    @property
    def decoders(self) -> list[str]:
        """Names of the decoders this model offers, its default first."""
        return [self._default, *(name for name in self._decoders if name != self._default)]

    @property
    def possible(self) -> list[str]:
        """Names of further decoders that this model has all it takes for, though its folder does not list them."""
        listed = self._decoders
        return [
            name
            for name, kind in DECODERS.items()
            if name not in listed and kind.comes_with in listed and (self.one_vocabulary or not kind.one_vocabulary)
        ]

    @property
    def one_vocabulary(self) -> bool:
        """Source and target ids mean the same."""
        return self.source_tokenizer.sha256 == self.target_tokenizer.sha256

    def part(self, name: str) -> nn.Module:
        """A part's module, loaded when first asked for."""
        if name not in self._parts:
            folder, there = self._homes[name]
            self._parts[name] = self.runner.place(folder.load(there, part_builder(folder, there)))
        return self._parts[name]

    def parts_of(self, decoder: str) -> dict[str, nn.Module]:
        """Role -> module, for one of this model's decoders."""
        config = self._decoder_config(decoder)
        return {role: self.part(part) for role, part in config.parts.items()}

    def decoder(self, name: str | None = None, /, **options: Any) -> tuple[Decoder, Limits]:
        """A decoder with its options, and the limits on its outputs, from one set of names."""
        return self._kept(name, options, partial(self._make, name, options))

    def _kept(
        self, name: str | None, options: Mapping[str, Any], make: Callable[[], tuple[Decoder, Limits]]
    ) -> tuple[Decoder, Limits]:
        """What was made under this name with these options before, or is now."""
        # 1, 1.0 and True are equal to Python, and not the same to an option.
        key = (name, self.lengths, tuple((option, type(value), value) for option, value in options.items()))
        if not all(isinstance(value, str | float | int | None) for value in options.values()):  # lists have no hash
            return make()
        found = self._made.get(key)
        if found is None:
            found = make()
            if len(self._made) >= KEPT_DECODERS:
                self._made.clear()
            self._made[key] = found  # never read again here: another thread may have cleared it
        return found

    def release(self, keep: Collection[str]) -> None:
        """Give back decoders that are not among these, parts that only they have, and what a runtime made of them; the
        usual decoder stays, with drafts for a sentence by itself."""
        usual, _ = self.decoder()
        keep = {*keep, usual.name, *([DRAFTED] if self._drafts_by_itself(usual) else [])}
        self._made = {key: made for key, made in list(self._made.items()) if made[0].name in {*keep, Fastest.name}}
        used = {part for name in keep for part in self._decoder_config(name).parts.values()}
        self.runner.forget([self._parts.pop(name) for name in list(self._parts) if name not in used])

    def _make(self, name: str | None, options: Mapping[str, Any]) -> tuple[Decoder, Limits]:
        name = name or self._default
        config = self._decoder_config(name)
        kind = find(DECODERS, name, "decoder")
        if kind.one_vocabulary and not self.one_vocabulary:
            raise OptionError(
                f"{name} expects one vocabulary for source and target, but {self.folder.path} has a tokenizer for each."
            )
        self.check(name)
        asked = amounts_asked(kind.options, options, name)
        stored = {name: value for name, value in config.defaults.items() if not asked or name not in HOW_MUCH}
        own, limits = split_options(kind.options, {**self._own_limits, **stored, **self._language, **options}, name)
        made, limits = kind.build(self.parts_of(name), self.runner, own), self._fitting(limits)
        if isinstance(made, VerifyingDecoder):
            # Stored lengths run as `adapt` measured them: no draft is given up before its row ends.
            made.insists = bool(asked - {"adaptive"}) or "lengths" in stored
        self._check_words(limits, made.special)
        if self.lengths is not None and getattr(own, "adaptive", False) and isinstance(made, VerifyingDecoder):
            made.keep_lengths(self.lengths(sorted({folder.identity for folder, _ in self._homes.values()})))
        made.check_limits(limits)
        return made, limits

    def batched_decoder(self, name: str | None = None, /, **options: Any) -> tuple[Decoder, Limits]:
        """The same for several sentences side by side: without drafts where these would slow it down, unless options
        say how to draft; a folder's defaults speak of one sentence at a time."""
        made, limits = self.decoder(name, **options)
        if not isinstance(made, VerifyingDecoder):
            return made, limits
        unsaid = self._decoder_config(made.name).defaults.keys() - options.keys()
        return self._kept(f"{name} (side by side)", options, lambda: (made.without_slow_drafts(unsaid), limits))

    def decoder_for(
        self, sentences: int, name: str | None = None, /, batch: int | None = None, trace: bool = False, **options: Any
    ) -> tuple[Decoder, Limits]:
        """Choose the decoder for a request of this many sentences, `batch` of them side by side (None: the fastest
        number). All requests are routed here.

        If greedy search is the default and the request names no decoder, the choice learns from timings: one sentence
        is decoded without drafts, with long or with short drafts; a few sentences side by side, or one by one in these
        ways. The output is the same to the bit, which requires a runtime whose sums do not depend on the width of a
        step and a folder whose defaults set nothing but the length of drafts. A `trace` changes no choice. Side by
        side, however, a traced verifying decoder keeps the drafts that :meth:`batched_decoder` skips to save time.
        """
        made, limits = self.decoder(name, **options)
        rows = min(self.batch if batch is None else batch, sentences)
        few = batch is None and 1 < sentences <= FEW
        if name is None and (few or rows < 2) and self._drafts_by_itself(made):
            ways = self._drafting(options)
            if not few:
                return self._kept("(by itself)", options, lambda: (Fastest(made, *ways), limits))
            alone = [lambda way=way: OneByOne(way()) for way in [lambda: made, *ways]]
            return self._kept(f"({sentences} sentences)", options, lambda: (Fastest(made, *alone), limits))
        return self.batched_decoder(name, **options) if rows > 1 and not trace else (made, limits)

    def lone_decoder(self, name: str | None = None, /, **options: Any) -> tuple[Decoder, Limits]:
        """The same for a sentence by itself."""
        return self.decoder_for(1, name, **options)

    def _drafts_by_itself(self, usual: Decoder) -> bool:
        """Whether drafts change no bit of what the usual decoder writes."""
        known = usual.name == GREEDY and self.runner.shape_invariant and DRAFTED in self._decoders
        return known and self._decoders[DRAFTED].defaults.keys() <= {*OF_DRAFTS}

    def _drafting(self, options: Mapping[str, Any]) -> list[Callable[[], Decoder]]:
        """What makes decoders with long drafts and with short ones."""

        def drafted() -> VerifyingDecoder[Any]:
            found, _ = self.decoder(DRAFTED, **options)
            assert isinstance(found, VerifyingDecoder)
            return found

        return [drafted, lambda: drafted().with_shorter_drafts()]

    def likelihood(self, decoder: str | None = None) -> Likelihood | None:
        """How probable the model holds given outputs: by the decoder named, else by the first that can say; or none."""
        for name in self.decoders if decoder is None else [decoder]:
            self._decoder_config(name)
            build = DECODERS[name].likelihood
            if build is not None:
                return build(self.parts_of(name), self.runner)
        return None

    def ensemble(self, others: Sequence[LoadedModel], /, **options: Any) -> tuple[Decoder, Limits]:
        """Beam search with the mean of several models' probabilities."""
        for other in others:
            if other.target_tokenizer.sha256 != self.target_tokenizer.sha256:
                raise OptionError(
                    f"An ensemble expects one vocabulary: {other.folder.path} has another tokenizer than "
                    f"{self.folder.path}."
                )
        own, limits = split_options(BeamOptions, {**self._own_limits, **self._language, **options}, "beam")
        models: list[Any] = [each.parts_of("beam")["model"] for each in (self, *others)]
        shortest = min((self, *others), key=lambda each: each.longest)
        made, limits = Beam(models, self.runner, own), shortest._fitting(limits)
        self._check_words(limits, made.special)
        made.check_limits(limits)
        return made, limits

    @cached_property
    def batch(self) -> int:
        """Sentences that are decoded side by side where nobody says how many."""
        return fastest_batch(self.runner.name)

    @property
    def portion(self) -> Portion:
        """Text that takes some seconds: what long jobs do at a time, so that an interruption loses no more."""
        parameters = sum(one.numel() for part in self.parts_of(self._default).values() for one in part.parameters())
        return Portion(some_seconds(self.runner.device.type) / max(1, parameters), 4 * self.batch)

    @property
    def longest(self) -> int:
        """The most tokens, EOS counted, that a source may have."""
        options = [folder.parts[name].options for folder, name in self._homes.values()]
        # Heads and tables have no positions of their own.
        return min((int(each["longest"]) for each in options if "longest" in each), default=1024)

    def check(self, *decoders: str) -> None:
        """Refuse decoders (default: all) whose parts or options are not as their kinds want them, reading no weight."""
        for name in decoders or self.folder.decoders:
            if name not in self._checked and name in self.folder.decoders:
                check_decoder(self.folder, name)
                self._checked.add(name)

    def _take_drafter(self, other: ModelFolder) -> None:
        """Let another folder's drafter draft for this model; it then does so unless told otherwise."""
        found = [name for name, part in other.parts.items() if part.kind == DRAFTER]
        if not found:
            raise ModelFolderError(
                f"{other.path}: expected a model folder with a drafter, found the parts {', '.join(other.parts)}."
            )
        mine, theirs = self.folder.config, other.config
        if any(
            getattr(mine, field) != getattr(theirs, field)
            for field in ("tokenizer_sha256", "source_tokenizer_sha256", "special_ids")
        ):
            raise OptionError(
                f"The drafter in {other.path} expects the vocabulary it was trained with, "
                f"found another tokenizer in {self.folder.path}."
            )
        verifier = self._decoder_config(GREEDY).parts["model"]
        self._parts.pop(DRAFTER, None)
        self._homes[DRAFTER] = (other, found[0])
        lists = [
            (one, one.decoders[DRAFTED].parts.get(SHORTLIST)) for one in (other, self.folder) if DRAFTED in one.decoders
        ]
        if home := next(((one, part) for one, part in lists if part is not None), None):
            self._parts.pop(SHORTLIST, None)
            self._homes[SHORTLIST] = home
        for name, kind in DECODERS.items():
            if set(kind.roles) == {"model", DRAFTER}:
                defaults = other.decoders[name].defaults if name in other.decoders else {}
                more = {SHORTLIST: SHORTLIST} if home and SHORTLIST in kind.optional else {}
                self._decoders[name] = DecoderConfig({"model": verifier, DRAFTER: DRAFTER, **more}, defaults)
        self._default = DRAFTED
        self.decoder()  # a drafter that does not fit is refused here

    def check_named(self, name: str) -> None:
        """Refuse a decoder that there is not."""
        self._decoder_config(name)

    def _decoder_config(self, name: str) -> DecoderConfig:
        if name in self._decoders:
            return self._decoders[name]
        if name in self.possible:
            return DecoderConfig(self._decoders[DECODERS[name].comes_with].parts)
        names = [*self.decoders, *self.possible]
        near, there = meant(name, names), ", ".join(names)
        raise OptionError(f"The model {self.folder.path} has no decoder {name!r}{near}; it has {there}.")

    @cached_property
    def _own_limits(self) -> dict[str, Any]:
        """The limits that its folder asks for, where they are not the usual ones."""
        usual = as_dict(Limits())
        return {name: value for name, value in as_dict(self.folder.config.limits).items() if value != usual[name]}

    def _fitting(self, limits: Limits) -> Limits:
        """Outputs can be no longer than the model has positions for, and only ids that it knows can be banned."""
        size = self.target_tokenizer.size
        if unknown := [token for token in limits.banned if token >= size]:
            raise OptionError(f"banned expects ids of the model's vocabulary, 0 to {size - 1}, found {unknown[0]}.")
        for name in ("forced_first", "forced_last"):
            if (forced := getattr(limits, name)) is not None and forced >= size:
                raise OptionError(f"{name} expects an id of the model's vocabulary, 0 to {size - 1}, found {forced}.")
        if limits.max_length > self.longest - 1:
            return Limits(**{**vars(limits), "max_length": self.longest - 1})
        return limits

    def _check_words(self, limits: Limits, special: SpecialIds) -> None:
        """Refuse limits under which no output can be as long as it must, because all words are banned or each stands
        but once: no id would be left where EOS may not stand yet."""
        never = {*special.never_generated, special.eos, *limits.banned}
        forced = limits.forced_first is not None and limits.forced_first in never
        words = self.target_tokenizer.size - len(never) + forced
        few = words <= forced or limits.no_repeat_ngram == 1
        if few and limits.min_length > words and limits.forced_first != special.eos:
            raise OptionError(
                f"min_length expects at most {words}, since banned and no_repeat_ngram leave no more words, found "
                f"{limits.min_length}."
            )
