"""Every kind of part and decoder there is, by the name it has in model folders and commands.

A system is imported when one of its parts or decoders is asked for: greedy search imports no lattice. Objectives are in
objectives.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from longstride.contract import ModelFolderError, OptionError
from longstride.contract.options import parse
from longstride.contract.suggestions import meant, ours

if TYPE_CHECKING:
    from torch import nn

    from longstride.contract import Decoder, Likelihood, Limits, Runner
    from longstride.model_folder import ModelFolder
    from longstride.text.tokenizer import Tokenizer


def _imported(path: str) -> Any:
    """``longstride.nn.options.TransformerOptions``: a name of a module."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class PartKind:
    """A kind of weights."""

    _module: str
    """where it is to be imported from"""
    additions: tuple[str, ...] = ()
    """patterns of weights that a part without them may be the start of; they begin as they are built"""
    _options: str = ""
    """where its options are, unless their name is its own and Options"""

    @cached_property
    def options(self) -> type:
        """Its options."""
        return _imported(self._options or f"{self._module}Options")  # type: ignore[no-any-return]

    @cached_property
    def build(self) -> Callable[[Any], nn.Module]:
        """Makes it of its options."""
        return _imported(self._module)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class DecoderKind:
    """A way of generating: what it is, what it needs and how it is put together."""

    summary: str
    roles: Mapping[str, str]
    """role -> the kind of part that plays it"""
    _decoder: str
    """where it is to be imported from; it is made of its parts, a runner and options"""
    likelihood: Callable[[Mapping[str, Any], Runner], Likelihood] | None = None
    """how probable its model holds given outputs; a decoder that verifies has its verifier's"""
    lossless: bool = False
    """it drafts, and its output is greedy search's, unless options say otherwise"""
    comes_with: str = ""
    """a folder that offers this decoder can do the new one too, with the same parts, even if it does not say so"""
    one_vocabulary: bool = False
    """source and target ids must mean the same"""
    ensemble: bool = False
    """it takes a list of models"""
    _options: str = ""
    """where its options are, unless their name is its own and Options"""
    optional: Mapping[str, str] = field(default_factory=dict)
    """roles that it can do without -> the kind of part"""

    @cached_property
    def options(self) -> type:
        """Its options."""
        return _imported(self._options or f"{self._decoder}Options")  # type: ignore[no-any-return]

    def played_by(self, parts: Collection[str]) -> dict[str, str]:
        """Role -> part, where parts have the names of the roles that they play."""
        return {role: role for role in (*self.roles, *(role for role in self.optional if role in parts))}

    def build(self, parts: Mapping[str, Any], runner: Runner, options: Any) -> Decoder:
        """Make it of parts by role, a runner and its options."""
        given = [[parts[role]] if self.ensemble else parts[role] for role in self.roles]
        more = {role: parts[role] for role in self.optional if role in parts}
        return _imported(self._decoder)(*given, runner, options, **more)  # type: ignore[no-any-return]


def _token_by_token(parts: Mapping[str, Any], runner: Runner) -> Likelihood:
    from longstride.systems.autoregressive.objective import likelihood

    return likelihood(parts["model"], runner, *([parts["heads"].first] if "heads" in parts else []))


def _by_directions(parts: Mapping[str, Any], runner: Runner) -> Likelihood:
    from longstride.systems.interleaved.model import InterleavedModel
    from longstride.systems.interleaved.objective import likelihood

    return likelihood(InterleavedModel(parts["model"], parts["interleaving"]), runner)


_NN, _SYSTEMS = "longstride.nn", "longstride.systems"
_LINK = ("link.*",)
_MODEL = {"model": "transformer"}
_SHORTLIST = {"shortlist": "shortlist"}

PARTS: dict[str, PartKind] = {
    "transformer": PartKind(f"{_NN}.transformer.Transformer", _options=f"{_NN}.options.TransformerOptions"),
    "heads": PartKind(f"{_SYSTEMS}.blockwise.model.Heads", _LINK),
    "drafter": PartKind(
        f"{_SYSTEMS}.draft_verify.model.Drafter", _LINK, f"{_SYSTEMS}.draft_verify.options.DrafterOptions"
    ),
    "shortlist": PartKind(f"{_SYSTEMS}.draft_verify.shortlist.Shortlist"),
    "interleaving": PartKind(
        f"{_SYSTEMS}.interleaved.model.Interleaving",
        ("starts", *_LINK),
        f"{_SYSTEMS}.interleaved.options.InterleavingOptions",
    ),
    "tables": PartKind(f"{_SYSTEMS}.lattice.tables.Tables"),
    "scorer": PartKind(f"{_SYSTEMS}.lattice.model.Scorer"),
    "one-pass": PartKind(f"{_SYSTEMS}.non_autoregressive.model.OnePass"),
}

OF_TRANSLATE = ("batch", "source_lang", "target_lang", "glossary", "drafts", "trace", "whole")
"""What translate is told beside options of its decoder."""
HOW_MUCH = frozenset({"k", "tree", "lengths", "adaptive", "whole"})
"""Options that say how much a decoder drafts. One of them in a call replaces all of them that a folder stores."""

DECODERS: dict[str, DecoderKind] = {
    "greedy": DecoderKind(
        "the most likely token, one after another",
        _MODEL,
        f"{_SYSTEMS}.autoregressive.decoder.Greedy",
        _token_by_token,
    ),
    "sample": DecoderKind(
        "tokens drawn at random from the model's distribution, one after another",
        _MODEL,
        f"{_SYSTEMS}.autoregressive.decoder.Sample",
        _token_by_token,
        comes_with="greedy",
    ),
    "beam": DecoderKind(
        "the best of several hypotheses, with exact early stopping",
        _MODEL,
        f"{_SYSTEMS}.autoregressive.decoder.Beam",
        _token_by_token,
        ensemble=True,
    ),
    "blockwise": DecoderKind(
        "heads predict a block, the model verifies it",
        {**_MODEL, "heads": "heads"},
        f"{_SYSTEMS}.blockwise.decoder.Blockwise",
        _token_by_token,
        lossless=True,
    ),
    "copy-verify": DecoderKind(
        "the source as the draft, verified; for correction and whatever else mostly copies",
        _MODEL,
        f"{_SYSTEMS}.draft_verify.copy_decoder.CopyVerify",
        _token_by_token,
        lossless=True,
        comes_with="greedy",
        one_vocabulary=True,
    ),
    "text-verify": DecoderKind(
        "a text that is given as the draft, verified: an earlier output, or a translation memory's",
        _MODEL,
        f"{_SYSTEMS}.draft_verify.copy_decoder.TextVerify",
        _token_by_token,
        lossless=True,
        comes_with="greedy",
    ),
    "draft-verify": DecoderKind(
        "a drafter proposes a block, the model verifies it",
        {**_MODEL, "drafter": "drafter"},
        f"{_SYSTEMS}.draft_verify.decoder.DraftVerify",
        _token_by_token,
        lossless=True,
        optional=_SHORTLIST,
    ),
    "draft-beam": DecoderKind(
        "beam search with fewer model calls, since a drafter proposes what its hypotheses go on with",
        {**_MODEL, "drafter": "drafter"},
        f"{_SYSTEMS}.draft_verify.beam_decoder.DraftBeam",
        _token_by_token,
        comes_with="draft-verify",
        optional=_SHORTLIST,
    ),
    "draft": DecoderKind(
        "the drafter alone, a block per pass",
        {**_MODEL, "drafter": "drafter"},
        f"{_SYSTEMS}.draft_verify.decoder.Draft",
    ),
    "interleaved": DecoderKind(
        "several words per pass, from both ends of the sentence",
        {**_MODEL, "interleaving": "interleaving"},
        f"{_SYSTEMS}.interleaved.decoder.Interleaved",
        _by_directions,
    ),
    "counts": DecoderKind(
        "the likeliest word at each place by aligned counts, no model at all",
        {"tables": "tables"},
        f"{_SYSTEMS}.lattice.counts_decoder.CountsDecoder",
        _options=f"{_SYSTEMS}.lattice.counts_decoder.CountsOptions",
    ),
    "lattice": DecoderKind(
        "candidates for every place, all edges scored in one pass, an exact search for the best path",
        {"model": "scorer", "tables": "tables"},
        f"{_SYSTEMS}.lattice.decoder.with_tables",
        _options=f"{_SYSTEMS}.lattice.pipeline.LatticeOptions",
    ),
    "non-autoregressive": DecoderKind(
        "all words in one pass, none knowing of another; the best of several lengths",
        {"model": "one-pass"},
        f"{_SYSTEMS}.non_autoregressive.decoder.NonAutoregressive",
    ),
}


def find(kinds: Mapping[str, Any], name: str, what: str) -> Any:
    """Look a kind up; an unknown name is answered with those there are."""
    if name not in kinds:
        there = ", ".join(sorted(kinds))
        raise OptionError(f"There is no {what} {name!r}{meant(name, kinds)}. Available: {there}.")
    return kinds[name]


def part_options(folder: ModelFolder, name: str) -> Any:
    """The options of a part of a folder, checked, with the folder's special ids."""
    config = folder.parts[name]
    with _naming(folder):
        if "special" in config.options:
            raise OptionError(f"parts.{name}: special ids are expected in special_ids, for all parts, found some here.")
        kind = find(PARTS, config.kind, "kind of part").options
        told = {"special": folder.special} if any(field.name == "special" for field in fields(kind)) else {}
        options: Any = parse(kind, {**config.options, **told}, f"parts.{name}")
    return options


def part_builder(folder: ModelFolder, name: str) -> Callable[[], nn.Module]:
    """What builds a part of a folder from its options, once these have been checked."""
    options = part_options(folder, name)
    return lambda: PARTS[folder.parts[name].kind].build(options)


def split_options(kind: type, options: Mapping[str, Any], name: str) -> tuple[Any, Limits]:
    """Options of a decoder and of the limits come under one set of names; sort them out."""
    from longstride.contract import Limits

    known, limits = ({field.name: None for field in fields(one)} for one in (kind, Limits))
    for option in options:
        if option not in known and option not in limits:
            names = ", ".join([*sorted(known), *limits])
            near = _of_others(option, {*known, *limits}) or meant(option, [*known, *limits])
            raise OptionError(f"The decoder {name} has no option {option!r}{near}; its options are {names}.")
    own: Any = parse(kind, {key: value for key, value in options.items() if key in known}, name)
    return own, parse(Limits, {key: value for key, value in options.items() if key in limits}, name)


def amounts_asked(kind: type, options: Mapping[str, Any], name: str) -> set[str]:
    """Return the names of the options that say how much to draft: not those that are none or false; `tree=0` is."""
    told = {key: value for key, value in options.items() if key in HOW_MUCH}
    own, _ = split_options(kind, told, name)
    return {key for key in told if getattr(own, key) is not None and getattr(own, key) is not False}


def _of_others(option: str, own: Collection[str]) -> str:
    """Where an option is to be given that a decoder with its `own` ones does not have; nothing where nobody has it."""
    name = ours(option)
    if name in own:
        return ""
    if name in OF_TRANSLATE:
        return f" (did you mean {name}, an option of translate and not of its decoders?)"
    having = [one for one, kind in DECODERS.items() if name in {field.name for field in fields(kind.options)}]
    if not having:
        return ""
    told = f"decoders {', '.join(having)} have" if len(having) > 1 else f"decoder {having[0]} has"
    return f" (the {told} {name}: --decoder {having[0]}, in Python decoder={having[0]!r})"


def check_folder(folder: ModelFolder, source: Tokenizer, target: Tokenizer) -> None:
    """Refuse unknown kinds, roles that are not theirs and parts of other tokenizers: all that needs no system."""
    fitting = {
        "vocabulary": target.size,
        "source_vocabulary": source.size,
        "tokenizer_sha256": target.sha256,
        "source_tokenizer_sha256": source.sha256,
    }
    with _naming(folder):
        if (largest := folder.special.largest) >= min(source.size, target.size):
            raise OptionError(f"special_ids expects ids of the tokenizers, found {largest}.")
        for name, part in folder.parts.items():
            find(PARTS, part.kind, "kind of part")
            for option, own in fitting.items():
                if (found := part.options.get(option)) not in (None, own):
                    raise OptionError(f"parts.{name}: {option} expects the tokenizer's {own}, found {found}.")
            longest = part.options.get("longest", 1)  # of every part, asked for or not: see Translator.longest
            if not isinstance(longest, int) or longest < 1:
                raise OptionError(f"parts.{name}: longest expects a number of tokens, found {longest!r}.")
            # Without a vocabulary of its own the source is looked up in the target's table.
            table = part.options.get("source_vocabulary") or part.options.get("vocabulary")
            if isinstance(table, int) and table < source.size:
                wanted = f"source_vocabulary expects the tokenizer's {source.size}"
                raise OptionError(f"parts.{name}: {wanted}, found {table}.")
        for name, decoder in folder.decoders.items():
            kind = find(DECODERS, name, "decoder")
            roles = {**kind.roles, **kind.optional}
            if not set(kind.roles) <= set(decoder.parts) <= set(roles):
                found, more = ", ".join(decoder.parts) or "none", f" (and {', '.join(kind.optional)})"
                expected = ", ".join(kind.roles) + (more if kind.optional else "")
                raise OptionError(f"decoders.{name}: parts expects {expected}, found {found}.")
            for role, part in decoder.parts.items():
                wanted = roles[role]
                if (found := folder.parts[part].kind) != wanted:
                    raise OptionError(f"decoders.{name}: {role} expects a part of kind {wanted}, found {found}.")


def check_decoder(folder: ModelFolder, name: str) -> None:
    """Refuse a decoder of a folder whose parts or options are not as their kinds want them, reading no weight."""
    config = folder.decoders[name]
    for part in config.parts.values():
        part_options(folder, part)
    with _naming(folder):
        split_options(find(DECODERS, name, "decoder").options, config.defaults, name)


@contextmanager
def _naming(folder: ModelFolder) -> Iterator[None]:
    """What is wrong with options is wrong with the folder that has them."""
    try:
        yield
    except OptionError as error:
        raise ModelFolderError(f"{folder.config_file}: {error}") from None
