"""generation_config.json, obeyed or refused by name: special ids, limits on outputs, and the search to use by default.

Lengths: transformers counts the decoder's first input and the end of sentence, we count neither. Folders from before
there was such a file have its fields in config.json.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from longstride.contract import Limits, ModelFolderError, OptionError
from longstride.contract.options import Options
from longstride.contract.suggestions import ELSEWHERE
from longstride.interop.hf.fields import Fields, is_id
from longstride.search.options import BeamOptions

T = TypeVar("T", bound=Options)

GENERATION = "generation_config.json"

UNBOUND = 10**6
"""Outputs are not bounded by their source's length in transformers."""

NO_EFFECT = (
    # what it is called, what is told beside the outputs, how it is carried out
    "_from_model_config", "_commit_hash", "transformers_version", "output_attentions", "output_hidden_states",
    "output_scores", "output_logits", "return_dict_in_generate", "use_cache", "cache_implementation", "cache_config",
    "return_legacy_cache", "max_cache_len", "low_memory", "prefill_chunk_size", "compile_config", "disable_compile",
    "continuous_batching_config", "remove_invalid_values",
    # sampling, which is a decoder's business (sample)
    "do_sample", "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff",
    # drafts, which change no output
    "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit", "assistant_lookbehind",
    "target_lookbehind", "assistant_ensemble_weight", "speculation_type", "use_mtp",
)  # fmt: skip

NEUTRAL: dict[str, Any] = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "diversity_penalty": 0.0,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "penalty_alpha": 0.0,
    "guidance_scale": 1.0,
    "token_healing": False,
    "begin_suppress_tokens": ([],),
    "sequence_bias": ([], {}),
    "constraints": ([],),
    "force_words_ids": ([],),
    "stop_strings": ([],),
    "exponential_decay_length_penalty": (),
    "max_time": (),
    "dola_layers": (),
    "watermarking_config": (),
}
"""Fields that change outputs, and values with which they do not."""

OBEYED = (
    "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "bad_words_ids", "suppress_tokens", "no_repeat_ngram_size", "min_length", "min_new_tokens",
    "max_length", "max_new_tokens", "length_penalty", "early_stopping", "num_beams",
    "force_bos_token_to_be_generated", "renormalize_logits",
)  # fmt: skip

_THEIRS = {**ELSEWHERE, "strength": ("length_penalty",)}
"""Our names of what is obeyed, and theirs"""

EVERY = (*OBEYED, *NEUTRAL, *NO_EFFECT)
"""All fields that are known, which config.json may have too."""


@dataclass(frozen=True)
class Generation:
    """How a folder wants its model to generate."""

    start: int
    eos: int
    pad: int | None
    suppress: tuple[int, ...]
    limits: Limits
    decoder: str
    decoder_options: dict[str, Any]
    shared_out: bool = False
    """whether the probability of what is suppressed goes to the rest, which beams' scores tell"""
    notes: tuple[str, ...] = field(default=())
    """what a person ought to be told"""
    unknown: tuple[str, ...] = ()
    """fields of its own file that are not known"""


def read_generation(folder: Path, config: Fields) -> Generation:
    """How a folder wants its model to generate; config.json's fields of this kind are taken, whether used or not."""
    file = folder / GENERATION
    own = file.is_file()
    fields = Fields.read(file) if own else Fields(
        {name: value for name, value in config.values.items() if name in EVERY}, config.place
    )  # fmt: skip
    config.leave(EVERY)
    found = _generation(fields, config, own)
    fields.leave(NO_EFFECT)
    fields.neutral(NEUTRAL)
    return replace(found, unknown=fields.unknown() if own else ())


def _generation(fields: Fields, config: Fields, own: bool) -> Generation:
    notes: list[str] = []
    eos = _eos(fields, config)
    bos, pad = (
        fields.optional_number(name) if fields.take(name) is not None else config.optional_number(name)
        for name in ("bos_token_id", "pad_token_id")
    )
    start = next(
        (found for one in (fields, config) for name in ("decoder_start_token_id", "bos_token_id")
         if (found := one.optional_number(name)) is not None),
        None,
    )  # fmt: skip
    if start is None:
        raise fields.wrong("decoder_start_token_id", "the decoder's first input", None)
    first = fields.optional_number("forced_bos_token_id")
    if fields.flag("force_bos_token_to_be_generated", False) and not own:
        first = bos
    suppress = _suppressed(fields, eos)
    if first is not None and first in fields.several("suppress_tokens"):
        raise fields.wrong("forced_bos_token_id", "an id that is not suppressed", first)
    limits = _limits(fields, eos, notes)
    if limits.get("forced_last") is not None and limits["forced_last"] in fields.several("suppress_tokens"):
        raise fields.wrong("forced_eos_token_id", "an id that is not suppressed", limits["forced_last"])
    limits["forced_first"] = first
    limits["no_repeat_ngram"] = fields.number("no_repeat_ngram_size", 0)
    beams = fields.number("num_beams", 1, 1)
    stopping, strength = fields.take("early_stopping", False), fields.real("length_penalty", 1.0)
    if not isinstance(stopping, bool) and stopping != "never":
        raise fields.wrong("early_stopping", "true, false or never", stopping)
    search: dict[str, Any] = {}
    if beams > 1:
        search = {"width": beams, "length_penalty": "hf", "strength": strength, "early_stopping": stopping}
        search["forced_eos"] = fields.take("forced_eos_token_id") is not None and "forced_last" not in limits
        _checked(BeamOptions, search, fields)
    if fields.take("do_sample"):
        notes.append(
            f"{fields.place} asks for sampling (do_sample); here the most likely output is searched for, and "
            "--decoder sample draws, with a temperature, top_k and top_p of its own."
        )
    renormalized = fields.flag("renormalize_logits", False) and beams > 1  # greedy search is the same either way
    if renormalized and (limits["min_length"] or limits["no_repeat_ngram"]):
        raise fields.wrong("renormalize_logits", "neither min_length nor no_repeat_ngram_size beside it", True)
    return Generation(
        start,
        eos,
        pad,
        suppress,
        _checked(Limits, limits, fields),
        "beam" if beams > 1 else "greedy",
        search,
        renormalized and bool(suppress),
        tuple(notes),
    )


def _limits(fields: Fields, eos: int, notes: list[str]) -> dict[str, Any]:
    forced = fields.take("forced_eos_token_id")
    forced = forced[0] if isinstance(forced, list) and len(forced) == 1 else forced
    if forced is not None and not is_id(forced):
        raise fields.wrong("forced_eos_token_id", "one id, or null", forced)
    most, newest = (fields.optional_number(name, 1) for name in ("max_length", "max_new_tokens"))
    if newest is not None:
        most = newest + 1
    found: dict[str, Any] = {"max_extra": UNBOUND}
    if forced not in (None, eos):
        found["forced_last"] = forced
    if most is None:
        notes.append(
            f"{fields.place} says no max_length: outputs have at most {Limits().max_length} tokens here, "
            "where transformers would end them after 20."
        )
    else:
        # The first input counts with them; and where the last token is forced to be the end, one less is text.
        found["max_length"] = most - 1 - (forced == eos)
        if found["max_length"] < 1:
            raise fields.wrong("max_length", "room for a token between start and end", most)
    least, fewest = fields.number("min_length", 0), fields.number("min_new_tokens", 0)
    found["min_length"] = fewest if fields.take("min_new_tokens") is not None else max(0, least - 1)
    found["min_length"] = min(found["min_length"], found.get("max_length", UNBOUND))
    return found


def _checked(kind: type[T], values: dict[str, Any], fields: Fields) -> T:
    """Options of ours; what they cannot be is told by the name that it has in the file."""
    try:
        return kind(**values)
    except OptionError as error:
        own, _, told = str(error).partition(" ")
        theirs = next((name for name in (own, *_THEIRS.get(own, ())) if name in fields.values), own)
        raise ModelFolderError(f"{fields.place}: {theirs} {told}") from None


def _eos(fields: Fields, config: Fields) -> int:
    for one in (fields, config):
        found = one.take("eos_token_id")
        if isinstance(found, list):
            if not all(map(is_id, found)) or len(set(found)) != 1:
                raise one.wrong("eos_token_id", "one id", found)
            found = found[0]
        if found is not None:
            if not is_id(found):
                raise one.wrong("eos_token_id", "an id", found)
            return found
    raise fields.wrong("eos_token_id", "the id that ends sentences", None)


def _suppressed(fields: Fields, eos: int) -> tuple[int, ...]:
    """Single ids that are forbidden everywhere."""
    found: set[int] = set()
    for words in fields.several("bad_words_ids"):
        if not isinstance(words, list) or len(words) != 1 or not is_id(words[0]):
            raise fields.wrong("bad_words_ids", "words of one token each", words)
        found.update(words)
    found.discard(eos)  # transformers lets a forbidden end pass
    if wrong := [each for each in fields.several("suppress_tokens") if not is_id(each)]:
        raise fields.wrong("suppress_tokens", "ids", wrong[0])
    found.update(fields.several("suppress_tokens"))
    return tuple(sorted(found))
