"""Shortlists: what a sentence may be drafted with, chosen and counted; whatever they hold, outputs stay the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import DEFAULT_IDS, EOS, RESERVED, Limits, ModelFolderError, OptionError, Source
from longstride.model_folder import ModelFolder
from longstride.runtime.eager import EagerRunner
from longstride.search.options import BeamOptions
from longstride.systems.autoregressive.decoder import Beam, Greedy
from longstride.systems.draft_verify import shortlist_counts
from longstride.systems.draft_verify.beam_decoder import DraftBeam, DraftBeamOptions
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.systems.draft_verify.shortlist import Chooser, Shortlist, ShortlistOptions
from longstride.systems.draft_verify.shortlist_counts import count
from longstride.text.binarized import BinarizedCorpus
from longstride.text.tokenizer import WordsTokenizer
from longstride.translator import load
from longstride.verification.acceptance import Rule
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.decoding.test_greedy import LIMITS
from tests.decoding.test_kept import SPECIALS, foreign_source, keeping, ordinary
from tests.family import write_family
from tests.folders import edit_config
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_graph_exact import refuse

RUNNER = EagerRunner(precision="fp64")
VOCABULARY = 11


def tiny_shortlist(seed: int, each: int = 2, usual: int = 3, size: int = 5, **changes: Any) -> Shortlist:
    """Any ids in any order, the same ones twice and special ones too."""
    made = Shortlist(ShortlistOptions(VOCABULARY, VOCABULARY, each, usual, size, **changes))
    generator = torch.Generator().manual_seed(seed)
    for ids in made.buffers():
        ids.copy_(torch.randint(0, VOCABULARY, ids.shape, generator=generator))
    return made


SHORTLISTS = st.builds(
    tiny_shortlist,
    seed=st.integers(0, 999), each=st.integers(1, 4), usual=st.integers(0, 6), size=st.integers(1, VOCABULARY),
)  # fmt: skip


def walked(shortlist: Shortlist, source: list[int]) -> list[int]:
    """The slow twin."""
    o, found = shortlist.options, [EOS]
    words, usual = shortlist.words.tolist(), shortlist.usual.tolist()
    for word in [*(words[id][rank] for rank in range(o.each) for id in source), *usual, *range(VOCABULARY)]:
        if word not in found:
            found.append(word)
    return found[: o.size]


def rows_of(source: Source) -> list[list[int]]:
    return [ids[:length] for ids, length in zip(source.ids.tolist(), source.lengths.tolist(), strict=True)]


@settings(max_examples=40)
@given(shortlist=SHORTLISTS, seed=st.integers(0, 999), rows=st.integers(1, 4))
def test_lists_are_walked(shortlist: Shortlist, seed: int, rows: int) -> None:
    source = random_source(rows, 6, seed=seed)
    found = Chooser(shortlist, None, VOCABULARY, EOS).choose(source.ids, source.lengths)
    assert [one.tolist() for one in found] == [walked(shortlist, row) for row in rows_of(source)]


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 4), capacity=st.integers(1, 4), limits=LIMITS, kind=KINDS,
    tree=st.integers(0, 9), shortlist=SHORTLISTS,
)  # fmt: skip
def test_lossless_and_of_listed_words(
    seed: int, rows: int, capacity: int, limits: Limits, kind: dict[str, Any], tree: int, shortlist: Shortlist
) -> None:
    """Chains are drafted from the whole vocabulary, trees from what each sentence lists by itself."""
    model, drafter = tiny_model(seed, sharpness=2.0, encoder_layers=2), tiny_drafter(seed, **kind)
    source = random_source(rows, 6, seed=seed)
    decoder = DraftVerify(model, drafter, RUNNER, DraftVerifyOptions(tree=tree), shortlist)
    assert "shortlist:true" in decoder.signature
    decoded = decoder.decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == Greedy(model, RUNNER).decode(source, limits).tokens
    assert decoded.traces is not None
    for row, (ids, trace) in enumerate(zip(rows_of(source), decoded.traces, strict=True)):
        if tree:
            assert {token for event in trace.events for token in event.draft} <= {*walked(shortlist, ids)}
        alone = decoder.decode(source.slice(row, row + 1), limits, trace=True)
        assert alone.traces is not None
        assert [event.ids for event in alone.traces[0].events] == [event.ids for event in trace.events]


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), kind=KINDS, tree=st.integers(1, 9))
def test_a_list_of_all_words_changes_no_draft(seed: int, kind: dict[str, Any], tree: int) -> None:
    model, drafter = tiny_model(seed, sharpness=2.0, encoder_layers=2), tiny_drafter(seed, **kind)
    source, options = random_source(3, 6, seed=seed), DraftVerifyOptions(tree=tree)
    whole = tiny_shortlist(seed, size=VOCABULARY)
    found = []
    for shortlist, asked in (
        (None, options),
        (whole, options),
        (tiny_shortlist(seed), replace(options, shortlist=False)),
    ):
        decoded = DraftVerify(model, drafter, RUNNER, asked, shortlist).decode(
            source, Limits(max_length=12), trace=True
        )
        assert decoded.traces is not None
        found.append([[(sorted(event.draft), event.ids) for event in trace.events] for trace in decoded.traces])
    assert found[0] == found[1] == found[2]


@BOTH
@settings(max_examples=8)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), kind=KINDS, tree=st.integers(1, 9), shortlist=SHORTLISTS)
def test_graphs_grow_the_same_trees(
    graphs: Graphs, seed: int, rows: int, kind: dict[str, Any], tree: int, shortlist: Shortlist
) -> None:
    model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2)
    drafter, source = tiny_drafter(seed, torch.float32, **kind), random_source(rows, 6, seed=seed)
    found = []
    for runner in (EagerRunner(precision="fp32"), graphs("fp32", 1, tell=refuse)):
        decoder = DraftVerify(model, drafter, runner, DraftVerifyOptions(tree=tree), shortlist)
        decoded = decoder.decode(source, Limits(max_length=12), trace=True)
        assert decoded.tokens == Greedy(model, runner).decode(source, Limits(max_length=12)).tokens
        assert decoded.traces is not None
        found.append([[(sorted(event.draft), event.ids) for event in trace.events] for trace in decoded.traces])
    assert found[0] == found[1]


@settings(max_examples=10)
@given(seed=st.integers(0, 999), name=st.sampled_from(sorted(SPECIALS)), some=st.integers(0, 4), tree=st.integers(1, 9))
def test_drafters_with_ids_of_their_own(seed: int, name: str, some: int, tree: int) -> None:
    special = SPECIALS[name]
    model = tiny_model(seed, special=special)
    drafter = keeping(ordinary(special)[:some], seed, special=special, link=3)
    source, limits = foreign_source(special, 3, seed), Limits(max_length=9)
    shortlist = tiny_shortlist(seed, special=special)
    decoder = DraftVerify(model, drafter, RUNNER, DraftVerifyOptions(tree=tree), shortlist)
    assert decoder.decode(source, limits).tokens == Greedy(model, RUNNER).decode(source, limits).tokens


@settings(max_examples=10)
@given(seed=st.integers(0, 999), width=st.integers(1, 3), shortlist=SHORTLISTS)
def test_beam_search_finds_the_same(seed: int, width: int, shortlist: Shortlist) -> None:
    model, drafter = tiny_model(seed, sharpness=2.0), tiny_drafter(seed, encoder={"encoder": "own"})
    source, limits = random_source(3, 6, seed=seed), Limits(max_length=9)
    decoder = DraftBeam(model, drafter, RUNNER, DraftBeamOptions(width=width, tree=5), shortlist)
    assert (
        decoder.decode(source, limits).tokens
        == Beam([model], RUNNER, BeamOptions(width=width)).decode(source, limits).tokens
    )


@pytest.mark.parametrize(
    "options",
    [
        DraftVerifyOptions(tree=4, temperature=0.8, seed=3),
        DraftVerifyOptions(tree=4, accept=Rule("top", 3)),
        DraftVerifyOptions(tree=4, min_block=2),
    ],
    ids=["drawn", "near", "at-least-two"],
)
def test_no_output_hangs_on_a_shortlist(options: DraftVerifyOptions) -> None:
    model, drafter = tiny_model(1, sharpness=1.0), tiny_drafter(1, encoder={"encoder": "own"})
    source, limits = random_source(8, 6, seed=1), Limits(max_length=12)
    found = [
        DraftVerify(model, drafter, RUNNER, options, shortlist).decode(source, limits).tokens
        for shortlist in (None, tiny_shortlist(1, size=1))
    ]
    assert found[0] == found[1]


# --- counting --------------------------------------------------------------------------------------------------------

PAIRS = [([5, 6], [7, 8]), ([6], [8]), ([5], [7]), ([5], [7]), ([6, 5], [8, 7])] * 3
"""7 stands for 5, 8 for 6."""
ONE, OTHER = (WordsTokenizer([*RESERVED, *letters]) for letters in ("abcdef", "ghijkl"))


def counted(pairs: list[tuple[list[int], list[int]]], target: WordsTokenizer = OTHER) -> Shortlist:
    return count(BinarizedCorpus.from_pairs(pairs), ONE, target, 3, DEFAULT_IDS)


def test_words_that_stand_for_words_are_counted() -> None:
    pairs = [*PAIRS, ([], [9]), ([9], [])]
    made = counted(pairs)
    assert made.words[5].tolist() == [7, EOS, EOS]
    assert made.words[6].tolist() == [8, EOS, EOS]
    assert made.words[9].tolist() == [EOS] * 3
    assert made.usual[:2].tolist() == [7, 8]
    made.check_weights()
    itself = counted(pairs, ONE)
    assert itself.words[5].tolist() == [7, 5, EOS]
    assert itself.words[9].tolist() == [9, EOS, EOS]


def test_seldom_words_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor more pairs read than there is time for."""
    monkeypatch.setattr(shortlist_counts, "KINDS", 1)
    made = counted(PAIRS)
    assert made.words[5].tolist() == [7, EOS, EOS]
    assert made.words[6].tolist() == [EOS] * 3
    monkeypatch.setattr(shortlist_counts, "PAIRS", 2)
    assert counted(PAIRS[:4]).words.shape == (VOCABULARY, 3)
    assert counted([([], [])]).words.eq(EOS).all()


# --- in folders ------------------------------------------------------------------------------------------------------


def test_a_folder_may_have_one_or_none(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "family")
    assert ModelFolder(folder).decoders["draft-verify"].parts["shortlist"] == "shortlist"
    translator, lines = load(folder, device="cpu"), ["a b c", "c", "f a d e"]
    signatures = [translator.decoder("draft-verify", **more)[0].signature for more in ({}, {"shortlist": False})]
    assert ["shortlist:true" in one for one in signatures] == [True, False]
    greedy = [one.tokens for one in translator.translate(lines, "greedy")]
    assert [one.tokens for one in translator.translate(lines, "draft-verify", tree=4)] == greedy
    other = load(folder, device="cpu", drafter=folder)
    assert "shortlist:true" in other.decoder("draft-verify")[0].signature
    edit_config(folder, "decoders", "draft-verify", "parts", "shortlist", value=None)
    without = load(folder, device="cpu")
    assert "shortlist:false" in without.decoder("draft-verify")[0].signature
    assert [one.tokens for one in without.translate(lines, "draft-verify", tree=4)] == greedy


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    bad = tiny_shortlist(0)
    bad.words[3, 1] = VOCABULARY
    with pytest.raises(OptionError, match=r"words expects ids from 0 to 10, found .* to 11; count the shortlist again"):
        bad.check_weights()
    drafter, model = tiny_drafter(0, encoder={"encoder": "own"}), tiny_model(0)
    wide = Shortlist(ShortlistOptions(VOCABULARY + 1, VOCABULARY))
    with pytest.raises(OptionError, match="vocabularies of 11 source and 12 target ids, found a model with 11 and 11"):
        DraftVerify(model, drafter, RUNNER, None, wide)
    folder = write_family(tmp_path / "family")
    edit_config(folder, "decoders", "draft-verify", "parts", "shortlist", value="tables")
    with pytest.raises(ModelFolderError, match="shortlist expects a part of kind shortlist, found tables"):
        load(folder, device="cpu")


def test_narrow_where_ids_fit() -> None:
    assert np.iinfo(np.int16).max == (1 << 15) - 1
    assert Shortlist(ShortlistOptions(1 << 15, 9, special=DEFAULT_IDS)).words.dtype == torch.int16
    assert Shortlist(ShortlistOptions((1 << 15) + 1, 9)).words.dtype == torch.int32
