"""The check that is part of an import: sentences decoded by transformers and by us, compared token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from longstride.bench.exactness import first_difference
from longstride.contract import ModelFolderError, Source, WorkError
from longstride.interop.exportable import GREEDY
from longstride.interop.hf.fields import Fields
from longstride.interop.peers import quiet, until
from longstride.runtime.libraries import package
from longstride.translator import Translator

BATCH = 8


@dataclass(frozen=True)
class Difference:
    """The first place where the two libraries part."""

    line: int
    """from 1"""
    place: int
    """token of the output, from 1; 0: the source itself is read differently"""
    ours: str
    theirs: str
    margin: float | None = None
    """how far their two best logits are apart there"""

    def __str__(self) -> str:
        if self.place == 0:
            return f"sentence {self.line} is read as {self.ours} here, and as {self.theirs} by transformers"
        close = "" if self.margin is None else f"; its two best logits are {self.margin:.2g} apart there"
        return f"sentence {self.line}, token {self.place}: {self.ours} here, {self.theirs} by transformers{close}"


@dataclass(frozen=True)
class Compared:
    """What came of a check."""

    sentences: int
    tokens: int
    version: str
    first: Difference | None

    def __str__(self) -> str:
        if self.first is None:
            return (
                f"The outputs of transformers {self.version} are the same, token by token: "
                f"{self.sentences} sentences, {self.tokens} tokens."
            )
        return f"Other outputs than those of transformers {self.version}: {self.first}."


def compare_with_transformers(
    folder: Path,
    translator: Translator,
    lines: Sequence[str],
    languages: tuple[str | None, str | None] = (None, None),
    ignored: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> Compared:
    """Greedy search by both, in single precision on the processor; the folder's settings are transformers' to obey.

    Fields that were `ignored` here must be unknown to transformers too.
    """
    library = package("transformers")
    kind = Fields.read(folder / "config.json").values["model_type"]
    known = library.CONFIG_MAPPING[kind](), library.GenerationConfig()
    if read := [name for name in ignored if any(hasattr(settings, name) for settings in known)]:
        raise ModelFolderError(
            f"{folder}: the field {read[0]} is not supported; transformers {library.__version__} may read it."
        )
    named = {key: code for key, code in zip(("src_lang", "tgt_lang"), languages, strict=True) if code is not None}
    with quiet(library):
        try:
            tokenizer = library.AutoTokenizer.from_pretrained(folder, local_files_only=True, **named)
            model = library.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        except Exception as error:  # of any kind: its checks of settings have their own
            told = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise WorkError(f"{folder}: transformers {library.__version__} could not open it ({told}).") from error
    with quiet(library):
        return compare_ids(model.eval(), str(library.__version__), translator, lines, tokenizer, progress)


def compare_ids(
    model: Any,
    version: str,
    translator: Translator,
    lines: Sequence[str],
    tokenizer: Any = None,
    progress: Callable[[int], None] | None = None,
) -> Compared:
    """The same with a model that is loaded; without a tokenizer of theirs, ours is believed."""
    decoder, limits = translator.decoder(GREEDY)
    ids = translator.encode(lines, warn=lambda said: None)
    if tokenizer is not None:
        for number, (line, own) in enumerate(zip(lines, ids, strict=True), start=1):
            theirs = [int(each) for each in tokenizer(line)["input_ids"]]
            if theirs != own and len(own) < translator.longest:
                return Compared(len(lines), 0, version, Difference(number, 0, str(own), str(theirs)))
    tokens = 0
    for first in range(0, len(ids), BATCH):
        part = ids[first : first + BATCH]
        source = Source.of(part)
        ours = decoder.decode(source, limits).tokens
        expected = generated(model, part, translator, limits.max_length, limits.forced_first)
        for row, (own, other) in enumerate(zip(ours, expected, strict=True)):
            if own != other:
                parted = _parting(model, translator, part[row], own, other)
                return Compared(len(lines), tokens, version, Difference(first + row + 1, *parted))
            tokens += len(own)
        if progress is not None:
            progress(min(first + BATCH, len(ids)))
    return Compared(len(lines), tokens, version, None)


def generated(
    model: Any, rows: Sequence[Sequence[int]], translator: Translator, longest: int, forced_first: int | None
) -> list[list[int]]:
    """Greedy outputs of transformers, between the first input and the end of sentence."""
    special = translator.folder.special
    widest = max(map(len, rows))
    padded = torch.tensor([[*row, *[special.pad] * (widest - len(row))] for row in rows])
    visible = torch.arange(widest) < torch.tensor([len(row) for row in rows])[:, None]
    own, tokenizer = model.generation_config, translator.target_tokenizer
    settings: dict[str, Any] = {}  # what the folder does not say: languages that were asked for, above all
    if getattr(tokenizer, "forced_first", None) is not None:
        settings["forced_bos_token_id"] = forced_first
    unsaid = own.decoder_start_token_id is None and own.bos_token_id is None
    if unsaid or getattr(tokenizer, "start", None) is not None:
        settings["decoder_start_token_id"] = special.start
    if own.max_length is None and own.max_new_tokens is None:
        settings["max_new_tokens"] = longest + (own.forced_eos_token_id in (special.eos, [special.eos]))
    found = model.generate(
        padded, attention_mask=visible.long(), num_beams=1, do_sample=False, **settings
    )  # fmt: skip
    return [until(special.eos, row[1:]) for row in found.tolist()]


def _parting(
    model: Any, translator: Translator, source: Sequence[int], ours: Sequence[int], theirs: Sequence[int]
) -> tuple[int, str, str, float]:
    """Where two outputs part, what each says there, and how sure theirs is."""
    special = translator.folder.special
    common = first_difference(ours, theirs, special.eos)
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[special.start, *ours[:common]]])
        ).logits[0, -1]
    best = logits.float().topk(2).values
    said = [
        repr(translator.target_tokenizer.pieces([row[common]])[0]) if common < len(row) else "the end"
        for row in (ours, theirs)
    ]
    return common + 1, said[0], said[1], float(best[0] - best[1])
