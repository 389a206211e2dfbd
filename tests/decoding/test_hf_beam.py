"""Beams like Hugging Face's: the hypotheses of transformers' own `generate`, token for token, and their scores.

Theirs are summed in fp32 whatever the model's type is, so that two of ours which lie closer together may change places.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from longstride.contract import EOS, Limits, OptionError, SpecialIds
from longstride.contract.options import parse
from longstride.nn.transformer import Transformer
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from tests.models import random_source
from tests.runtime.graphs import BOTH
from tests.runtime.test_cuda_graph import taped
from tests.runtime.test_graph_exact import refuse

pytest.importorskip("transformers")

from tests.nn.test_families import family

SENTENCES = int(os.environ.get("LONGSTRIDE_HF_SENTENCES", "72"))
"""How many are compared in all; a thousand take a minute."""
ROWS, CLOSE = 4, 2e-6
START = {"bart": 2, "t5": 0, "m2m100": EOS}
SETTINGS = list(product((2, 4, 5), (True, False, "never"), (0.0, 1.0, 2.0, -1.0, 0.6), (False, True), START))
MORE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram": 2}),
    ({"forced_bos_token_id": 7}, {"forced_first": 7}),
    ({"forced_eos_token_id": 7}, {"forced_last": 7}),
    ({"min_length": 5}, {"min_length": 4}),  # theirs counts the start token
    ({"forced_bos_token_id": 0, "no_repeat_ngram_size": 1}, {"forced_first": 0, "no_repeat_ngram": 1}),
    ({"no_repeat_ngram_size": 3, "bad_words_ids": [[8]]}, {"no_repeat_ngram": 3, "banned": (8,)}),
]
"""What `generate` is told, and our limits."""


def models(name: str, dtype: torch.dtype, seed: int = 0) -> tuple[Any, Any]:
    """Ours and theirs, of the same weights, with theirs' special ids."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        same, theirs = family(name, dtype)
    ids = theirs.generation_config
    pad = ids.pad_token_id  # never generated: of M2M100's positions their library leaves those of pads out
    special = SpecialIds(pad, None, ids.decoder_start_token_id, ids.eos_token_id, None, (pad,))
    mine = Transformer(replace(same.options, special=special))
    mine.load_state_dict(same.state_dict())
    return mine.to(dtype).eval().requires_grad_(False), theirs


def generated(theirs: Any, source: Any, longest: int, n: int, **told: Any) -> list[list[tuple[list[int], float]]]:
    """Per row what `generate` gives: words and score; those that it has no hypothesis for are left out."""
    visible = (torch.arange(source.longest) < source.lengths[:, None]).long()
    never = [[theirs.generation_config.pad_token_id], *told.pop("bad_words_ids", [])]
    found = theirs.generate(
        input_ids=source.ids,
        attention_mask=visible,
        do_sample=False,
        num_return_sequences=n,
        max_length=longest + 1 + (told["forced_eos_token_id"] == EOS),
        return_dict_in_generate=True,
        output_scores=True,
        bad_words_ids=never,
        **told,
    )
    rows: list[list[tuple[list[int], float]]] = [[] for _ in range(source.rows)]
    scores = found.sequences_scores.tolist() if told["num_beams"] > 1 else [0.0] * source.rows
    for number, (ids, score) in enumerate(zip(found.sequences[:, 1:].tolist(), scores, strict=True)):
        words = ids[: ids.index(EOS)] if EOS in ids else ids[:longest]
        if score > -1e8:
            rows[number // n].append((words, score))
    return rows


def same(ours: list[Any], theirs: list[tuple[list[int], float]]) -> bool:
    """Whether the hypotheses of a sentence are those that were expected."""
    if len(ours) != len(theirs):
        return False
    for found, (words, score) in zip(ours, theirs, strict=True):
        near = [other for other in ours if abs(other.score - found.score) <= CLOSE * max(1, abs(score))]
        if all(other.tokens != words for other in near) or abs(found.score - score) > 10 * CLOSE * max(1, abs(score)):
            return False
    return True


def test_hypotheses_are_those_of_generate() -> None:
    """All settings by turns, with and without limits; every n-best list whole."""
    made = {name: models(name, torch.float64) for name in START}
    runner, ended = EagerRunner(precision="fp64"), 0
    turns = -(-SENTENCES // ROWS)
    for turn in range(turns):
        width, early, strength, forced, name = SETTINGS[turn * 61 % len(SETTINGS)]
        told, limits = MORE[turn % len(MORE)]
        forced = forced and "forced_last" not in limits
        source, longest = random_source(ROWS, 9, seed=turn), 3 + turn % 9
        mine, theirs = made[name]
        more = {"forced_eos_token_id": EOS if forced else None, **told}
        expected = generated(
            theirs, source, longest, width, num_beams=width, length_penalty=strength, early_stopping=early, **more
        )
        options = BeamOptions(width, "hf", strength, width, early, forced)
        bounds = Limits(max_length=longest, max_ratio=0, max_extra=1000, **{**limits, "min_length": 0})
        bounds = replace(bounds, min_length=min(limits.get("min_length", 0), longest))
        found = Beam([mine], runner, options).decode(source, bounds, capacity=1 + turn % ROWS)
        for row in range(ROWS):
            assert same(found.hypotheses[row], expected[row]), (turn, row, options, bounds)
            ended += sum(len(one.tokens) < longest for one in found.hypotheses[row])
    assert ended > SENTENCES / 3  # or the test would be about cut outputs alone


def test_greedy_search_is_that_of_generate_under_the_same_limits() -> None:
    runner = EagerRunner(precision="fp64")
    for name in START:
        mine, theirs = models(name, torch.float64)
        for number, (told, limits) in enumerate(MORE):
            source = random_source(ROWS, 9, seed=number)
            expected = generated(theirs, source, 12, 1, **{"num_beams": 1, "forced_eos_token_id": None, **told})
            found = Greedy(mine, runner).decode(source, Limits(12, 0, 1000, **limits))
            wanted = [row[0][0] for row in expected]
            if limits.get("no_repeat_ngram") == 1:
                # Once all words are used up and the end, which is the start, may not stand again, theirs writes the
                # first id again and again; ours ends.
                wanted = [[word for at, word in enumerate(words) if word not in words[:at]] for words in wanted]
            assert found.tokens == wanted, (name, limits)


@BOTH
def test_graphs_find_what_eager_code_finds(graphs: Any) -> None:
    runner = graphs("fp32", 1, tell=refuse)
    for number, (early, name) in enumerate(zip((True, False, "never"), START, strict=True)):
        mine, _ = models(name, torch.float32)
        source, options = random_source(3, 9, seed=number), BeamOptions(3, "hf", 1.0, 2, early, number == 1)
        for limits in (Limits(10), Limits(10, forced_first=7, no_repeat_ngram=2)):
            expected = Beam([mine], EagerRunner(), options).decode(source, limits)
            for capacity in (1, 3):
                found = Beam([mine], runner, options).decode(source, limits, capacity=capacity)
                assert found.tokens == expected.tokens


def test_recordings_find_what_eager_code_finds() -> None:
    for number, (early, name) in enumerate(zip((True, False, "never"), START, strict=True)):
        runner, _ = taped()
        mine, _ = models(name, torch.float64)
        source, options = random_source(4, 9, seed=number), BeamOptions(3, "hf", 1.0, 2, early, number == 1)
        for limits in (Limits(8), Limits(8, forced_first=7, no_repeat_ngram=2)):
            expected = Beam([mine], EagerRunner(precision="fp64"), options).decode(source, limits)
            assert Beam([mine], runner, options).decode(source, limits, capacity=2).tokens == expected.tokens


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"early_stopping": "never"}, "early_stopping expects length_penalty=hf, found length_penalty=gnmt."),
        ({"forced_eos": "true"}, "forced_eos expects length_penalty=hf, found length_penalty=gnmt."),
        ({"early_stopping": "often", "length_penalty": "hf"}, "expects bool or never, found 'often'."),
    ],
)
def test_options_that_say_nothing_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse(BeamOptions, given)


def test_early_stopping_is_read_as_it_is_written() -> None:
    for text, value in (("true", True), ("false", False), ("never", "never"), (True, True), (False, False)):
        assert parse(BeamOptions, {"early_stopping": text, "length_penalty": "hf"}).early_stopping == value
