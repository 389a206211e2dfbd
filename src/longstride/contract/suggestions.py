"""The name that was meant, where one was written that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

ELSEWHERE = {
    "batch": ("batch_size", "max_batch_size"),
    "width": ("num_beams", "beam_size", "beam_width", "beams"),
    "n_best": ("num_return_sequences", "num_hypotheses"),
    "max_length": ("max_new_tokens", "max_decoding_length"),
    "min_length": ("min_new_tokens", "min_decoding_length"),
    "no_repeat_ngram": ("no_repeat_ngram_size",),
    "forced_first": ("forced_bos_token_id",),
    "forced_last": ("forced_eos_token_id",),
    "banned": ("suppress_tokens",),
    "temperature": ("sampling_temperature",),
    "top_k": ("sampling_topk",),
    "top_p": ("sampling_topp",),
    "source_lang": ("src_lang",),
    "target_lang": ("tgt_lang",),
}
"""Our names, and what Hugging Face and CTranslate2 call the same."""
_OURS = {theirs: ours for ours, several in ELSEWHERE.items() for theirs in several}


def ours(name: str) -> str:
    """Our name for what another library calls so; any other name as it is."""
    return _OURS.get(name.lower().replace("-", "_"), name)


def meant(name: str, names: Iterable[str]) -> str:
    """`` (did you mean greedy?)``, to be put behind an unknown name in an error; nothing where none is near."""
    by_spelling = {one.lower().replace("_", "-"): one for one in names}
    written = name.lower().replace("_", "-")[:100]
    begun = [one for one in by_spelling if len(written) > 2 and one.startswith(written)]
    same = [one for one in (ours(name).replace("_", "-"),) if one in by_spelling and one != written]
    found = same or get_close_matches(written, by_spelling, n=1) or begun
    return f" (did you mean {by_spelling[found[0]]}?)" if found else ""
