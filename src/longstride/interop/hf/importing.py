"""A Hugging Face folder as a model folder of ours: options, weights, tokenizers, and how it wants to generate.

Its settings are kept in the provenance as they are, and the tokenizers keep their files, so that an export can give the
folder back.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longstride import model_folder
from longstride.contract import InputError, Limits, ModelFolderError, OptionError, SpecialIds, WorkError
from longstride.contract.options import shown
from longstride.interop.hf.check import compare_with_transformers
from longstride.interop.hf.families import family_of, options_of, refuse_remote_code
from longstride.interop.hf.fields import Fields
from longstride.interop.hf.generation import GENERATION, read_generation
from longstride.interop.hf.tokenizer_limits import check_tokenizer
from longstride.interop.hf.weights import out_of_reach, read_weights, take_weights, widened
from longstride.interop.peers import SENTENCES
from longstride.model_folder import DecoderConfig, Part
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.nn.weights import fill, uninitialised
from longstride.runtime.libraries import MissingPackageError, package
from longstride.text.folders import check_plain
from longstride.text.hf_tokenizer import HFTokenizer, read_hf_tokenizers
from longstride.text.missing import check_there
from longstride.text.naming import called
from longstride.text.tokenizer import Tokenizer
from longstride.translator import Translator, load

CONFIG = "config.json"
PROVENANCE = "hf"
"""What provenance tells of an import is under this name."""

SETTINGS = (CONFIG, GENERATION)
"""Files that are kept as they are."""

ADAPTER = "adapter_config.json"
"""The settings of an adapter of PEFT, which transformers would load."""

MODEL = "model"


@dataclass(frozen=True)
class Imported:
    """All of a Hugging Face folder that a model folder needs."""

    place: Path
    """the folder"""
    family: str
    options: TransformerOptions
    state: dict[str, Tensor]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    limits: Limits
    decoder: str
    decoder_options: dict[str, Any]
    provenance: dict[str, Any]
    notes: tuple[str, ...]
    """what a person ought to be told"""
    ignored: tuple[str, ...] = ()
    """fields and tensors that are not known, which transformers ignores too"""

    @property
    def dtype(self) -> torch.dtype:
        """A type that holds every weight exactly."""
        found = {tensor.dtype for tensor in self.state.values()}
        return found.pop() if len(found) == 1 else torch.float32

    def module(self) -> Transformer:
        """The model, in single precision."""
        model = uninitialised(lambda: Transformer(self.options))
        fill(model, self.state, self.place)
        return model.eval().requires_grad_(False)

    def save(self, path: Path) -> None:
        """Write a model folder, whole or not at all."""
        defaults = {self.decoder: self.decoder_options}
        decoders = {name: DecoderConfig({"model": MODEL}, defaults.get(name, {})) for name in ("greedy", "beam")}
        model_folder.write(
            path,
            {MODEL: Part("transformer", self.options, self.module())},
            decoders,
            self.decoder,
            self.target_tokenizer,
            self.source_tokenizer,
            self.provenance,
            self.dtype,
            self.limits,
        )


def import_folder(
    folder: Path,
    source_lang: str | None = None,
    target_lang: str | None = None,
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
) -> Imported:
    """Read a folder of transformers; `tokenizers` (source, target) take the place of its own."""
    if not folder.is_dir():
        check_there(folder, "a Hugging Face folder")
        raise ModelFolderError(f"{folder}: expected a Hugging Face folder, found a file.")
    check_plain(folder)
    if (folder / ADAPTER).exists():
        raise ModelFolderError(
            f"{folder}: expected whole weights, found an adapter ({ADAPTER}); merge it into its model and save that."
        )
    config = Fields.read(folder / CONFIG)
    family = family_of(config)
    generation = read_generation(folder, config)
    shape = options_of(family, config)
    forced, start, notes = generation.limits.forced_first, generation.start, list(generation.notes)
    if tokenizers is None:
        if (folder / "tokenizer_config.json").is_file():
            refuse_remote_code(Fields.read(folder / "tokenizer_config.json"))
        check_tokenizer(folder)
        read = read_hf_tokenizers(folder, source_lang, target_lang, _converted)
        tokenizers = read.source, read.target
        if target_lang is not None:  # it has the last word
            forced = read.forced_first if read.forced_first is not None else forced
            start = read.start if read.start is not None else start
    source, target = tokenizers
    tied = config.values.get("tie_word_embeddings") is not False
    taken = take_weights(family, shape, read_weights(folder), str(folder), tied)
    ignored = tuple(dict.fromkeys((*config.unknown(), *generation.unknown, *taken.unknown)))
    own, suppress = taken.options.vocabulary, generation.suppress
    if isinstance(target, HFTokenizer) and target.size > own and taken.options.source_vocabulary is None:
        # Ids of its tokenizer alone, which no output can have: special ones, or it would not have been read.
        taken, suppress = widened(taken, target.size), (*suppress, *range(own, target.size))
    try:
        special = SpecialIds(
            pad=target.special.pad if generation.pad is None else generation.pad,
            unk=target.special.unk,
            start=start,
            eos=generation.eos,
            mask=target.special.mask,
            suppress=suppress,
        )
    except OptionError as error:
        raise ModelFolderError(f"{folder}: {error}") from None
    _check_tokenizers(folder, taken.options, special, source, target)
    beyond = tuple(range(own, taken.options.vocabulary))
    taken, put_out = out_of_reach(taken, (*(generation.suppress if generation.shared_out else ()), *beyond))
    for name, one in (("forced_bos_token_id", forced), ("forced_eos_token_id", generation.limits.forced_last)):
        if one is not None and one >= taken.options.vocabulary:
            raise ModelFolderError(f"{folder}: {name} expects an id of the model's vocabulary, found {one}.")
    if taken.options.sinusoid == "fairseq" and special.pad in (start, forced):
        # transformers gives padding no position, wherever it stands.
        raise ModelFolderError(
            f"{folder}: expected the decoder's inputs not to begin with padding, found its id, {special.pad}."
        )
    if usual := [name for name in taken.unread if name not in taken.unknown]:
        notes.append(f"{folder}: not read, as transformers does not read it either: {', '.join(usual)}.")
    told = {
        "folder": folder.resolve().name,
        "family": family.name,
        "tensors": {name: kind for name, kind in taken.names.items() if name not in taken.unread},
        "settings": {name: (folder / name).read_text("utf-8") for name in SETTINGS if (folder / name).is_file()},
        "vocabulary": own,
        "logits_bias": {token: bias for token, bias in put_out.items() if int(token) < own},
        "source_lang": source_lang,
        "target_lang": target_lang,
        **({"ignored": list(ignored)} if ignored else {}),
    }
    return Imported(
        folder,
        family.name,
        replace(taken.options, special=special),
        taken.state,
        source,
        target,
        replace(generation.limits, forced_first=forced),
        generation.decoder,
        generation.decoder_options,
        {PROVENANCE: told},
        tuple(notes),
        ignored,
    )


def _check_tokenizers(
    folder: Path, options: TransformerOptions, special: SpecialIds, source: Tokenizer, target: Tokenizer
) -> None:
    """Refuse tokenizers whose ids the model does not have, or whose special ids it gives another meaning."""
    for tokenizer, size in ((source, options.source_vocabulary or options.vocabulary), (target, options.vocabulary)):
        if tokenizer.size > size:
            raise ModelFolderError(
                f"{folder}: expected a tokenizer of at most the model's {size} ids, found one of {tokenizer.size}."
            )
        for name in ("pad", "eos"):
            if (own := getattr(tokenizer.special, name)) != (told := getattr(special, name)):
                raise ModelFolderError(
                    f"{folder}: expected a tokenizer whose {name} is the model's {told}, found one with {own}."
                )
    if special.largest >= options.vocabulary:
        raise ModelFolderError(
            f"{folder}: expected special ids of the model's {options.vocabulary}, found {special.largest}."
        )


def _converted(folder: Path) -> bytes:
    """tokenizer.json of a folder that has a SentencePiece model alone, as transformers makes it."""
    try:
        library = package("transformers")
    except MissingPackageError as error:
        raise ModelFolderError(
            f"{folder}: expected tokenizer.json, found a SentencePiece model alone. {error}"
        ) from None
    found = library.AutoTokenizer.from_pretrained(folder, local_files_only=True, use_fast=True)
    if not getattr(found, "is_fast", False):
        raise ModelFolderError(
            f"{folder}: expected tokenizer.json, or what transformers could make one of, found none."
        )
    return str(found.backend_tokenizer.to_str()).encode("utf-8")


__all__ = ["CONFIG", "PROVENANCE", "SETTINGS", "Imported", "import_folder"]


def from_transformers(
    model: Any,
    tokenizer: Any,
    *,
    source_lang: str | None = None,
    target_lang: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    runtime: str = "auto",
    threads: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> Translator:
    """What :func:`longstride.load` would give of a model and tokenizer of transformers, imported.

    They are saved to a temporary folder, which goes when the translator does. Outputs are compared here only where the
    settings have fields that are not known; `longstride import` always compares them. `tell` hears what a person ought
    to know of how the model will generate.
    """
    for name, one in (("model", model), ("tokenizer", tokenizer)):
        if not hasattr(one, "save_pretrained"):
            raise InputError(f"from_transformers expects a {name} of transformers, found {shown(one)}.")
    home = tempfile.TemporaryDirectory(prefix="longstride-")
    theirs, ours = Path(home.name) / "hf", Path(home.name) / "model"
    with called(theirs, type(model).__name__):
        model.save_pretrained(theirs)
        tokenizer.save_pretrained(theirs)
        found = import_folder(theirs, source_lang, target_lang)
        found.save(ours)
        if found.ignored:
            languages = source_lang, target_lang
            compared = compare_with_transformers(theirs, load(ours, device="cpu"), SENTENCES, languages, found.ignored)
            if compared.first is not None:
                raise WorkError(f"{theirs}: {compared}")
    for note in found.notes if tell is not None else ():
        tell(note)  # type: ignore[misc]
    translator = load(ours, device=device, precision=precision, runtime=runtime, threads=threads, tell=tell)
    weakref.finalize(translator, home.cleanup)  # parts are read when they are asked for
    return translator
