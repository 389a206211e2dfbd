"""Drafters with ids of their own: whatever they keep, greedy's output; with all ids kept, what a plain drafter does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from longstride import load
from longstride.contract import DEFAULT_IDS, EOS, UNK, Batch, Limits, ModelFolderError, OptionError, Source, SpecialIds
from longstride.nn.transformer import Transformer
from longstride.nn.weights import fill
from longstride.objectives import OBJECTIVES, Plan
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify.decoder import Draft, DraftVerify, DraftVerifyOptions
from longstride.systems.draft_verify.kept import count_ids, most_frequent, own_ids_of, reserved_ids
from longstride.systems.draft_verify.model import Drafter, begin_as
from longstride.systems.draft_verify.objective import DrafterObjective, DrafterObjectiveOptions, DrafterWithVerifier
from longstride.systems.draft_verify.options import DrafterOptions
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.decoding.test_draft_verify import LINES, sentences, write_drafted
from tests.decoding.test_special_ids import VOCABULARY, renumbered, specials
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH
from tests.training.test_drafter_objective import make_batch

RUNNER = EagerRunner(precision="fp64")
SPECIALS = {
    "ours": DEFAULT_IDS,
    "marian": SpecialIds(pad=10, unk=1, start=10, eos=0, mask=None),
    "nllb": SpecialIds(pad=1, unk=3, start=2, eos=2, mask=None),
    "t5": SpecialIds(pad=0, unk=2, start=0, eos=1, mask=None),
    "bart": SpecialIds(pad=1, unk=3, start=2, eos=2, mask=9),
}


def keeping(ids: list[int], seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> Drafter:
    """A tiny drafter that keeps these ids."""
    drafter = tiny_drafter(seed, dtype, kept=5 + len(ids), **changes)
    drafter.keep(torch.tensor(ids, dtype=torch.int64))
    return drafter


def ordinary(special: SpecialIds) -> list[int]:
    """The ids that are no special ones."""
    return [id for id in range(VOCABULARY) if id not in reserved_ids(special)]


def foreign_source(special: SpecialIds, rows: int, seed: int) -> Source:
    """Random words of a vocabulary with other special ids."""
    ours = sentences(random_source(rows, 6, seed=seed))
    words = ordinary(special)
    return Source.of([[*(words[id % len(words)] for id in row[:-1]), special.eos] for row in ours])


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(sorted(SPECIALS)),
    share=st.sampled_from([0.0, 0.4, 1.0]),
    kind=KINDS,
    rows=st.integers(1, 4),
    limits=st.sampled_from([Limits(max_length=9), Limits(max_length=9, min_length=3, banned=(7,))]),
)
def test_whatever_is_kept_the_output_is_greedys_and_a_batch_its_rows(seed, name, share, kind, rows, limits):
    special = SPECIALS[name]
    words = ordinary(special)
    order = torch.randperm(len(words), generator=torch.Generator().manual_seed(seed)).tolist()
    ids = [words[place] for place in order[: int(share * len(words))]]
    model = tiny_model(seed, sharpness=2.0, encoder_layers=2, special=special)
    drafter = keeping(ids, seed, special=special, **kind)
    source = foreign_source(special, rows, seed)
    decoder = DraftVerify(model, drafter, RUNNER)
    assume(ids or not limits.min_length)  # else nothing may be drafted, EOS neither
    found = decoder.decode(source, limits, capacity=2, trace=True)
    assert found.tokens == Greedy(model, RUNNER).decode(source, limits).tokens
    drafted = {token for trace in found.traces for event in trace.events for token in event.draft}
    allowed = {*ids, special.eos} - {*limits.banned}
    assert drafted <= (allowed if not kind["link"] else {*drafter.kept_ids.tolist()})
    for row, sentence in enumerate(sentences(source)):
        alone = decoder.decode(Source.of([sentence]), limits, trace=True)
        drafts = [[event.draft for event in trace.events] for trace in (alone.traces[0], found.traces[row])]
        assert alone.tokens[0] == found.tokens[row]
        assert drafts[0] == drafts[1]
    alone = Draft(model, drafter, RUNNER).decode(source, limits)
    assert {token for tokens in alone.tokens for token in tokens} <= allowed


def translated(seed: int, dtype: torch.dtype, identity: bool, **kind: Any) -> tuple[Any, ...]:
    """A verifier with a plain drafter; both under other numbers, the drafter with ids of its own; and the numbers."""
    order = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(seed))
    order = torch.arange(VOCABULARY) if identity else order
    model, drafter = tiny_model(seed, dtype, sharpness=2.0, encoder_layers=2), tiny_drafter(seed, dtype, **kind)
    special = DEFAULT_IDS if identity else specials(order)
    other = renumbered(model, order, special, Transformer)
    own = keeping(order[5:].tolist(), seed, dtype, special=special, **kind)
    assert torch.equal(own.kept_ids, order)
    own.load_state_dict({**drafter.state_dict(), "kept_ids": own.kept_ids})
    return model, drafter, other, own, order


def same_drafts(runner: Any, dtype: torch.dtype, seed: int, identity: bool, **kind: Any) -> None:
    model, drafter, other, own, order = translated(seed, dtype, identity, **kind)
    source = random_source(3, 6, seed=seed)
    there = Source.of([order[torch.tensor(ids)].tolist() for ids in sentences(source)])
    limits = Limits(max_length=12, banned=(UNK,))
    renamed = replace(limits, banned=(int(order[UNK]),))
    for kind_of in (DraftVerify, Draft):
        expected = kind_of(model, drafter, runner).decode(source, limits, trace=True)
        found = kind_of(other, own, runner).decode(there, renamed, trace=True)
        for theirs, mine in zip(expected.traces, found.traces, strict=True):
            drafts = [order[torch.tensor(event.draft, dtype=torch.long)].tolist() for event in theirs.events]
            assert [list(event.draft) for event in mine.events] == drafts
        assert found.scores == pytest.approx(expected.scores, abs=1e-4)


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), identity=st.booleans(), kind=KINDS)
def test_all_ids_kept_draft_what_a_plain_drafter_does(seed, identity, kind):
    same_drafts(RUNNER, torch.float64, seed, identity, **kind)


@BOTH
def test_in_graphs_too(graphs):
    runner = graphs("fp32", 1)
    shared = {"encoder": "shared", "verifier_width": 16}
    for seed, kind in enumerate(({"link": 3}, {"link": 0, "soft_copy": False, **shared})):
        same_drafts(runner, torch.float32, seed, seed == 1, **kind)
        special = SPECIALS["marian"]
        model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2, special=special)
        source = foreign_source(special, 3, seed)
        for ids, banned in (([], ()), ([4, 8, 2], (8,))):
            drafter = keeping(ids, seed, torch.float32, special=special, **kind)
            limits = Limits(max_length=12, banned=banned)
            found = DraftVerify(model, drafter, runner, DraftVerifyOptions(k=3)).decode(source, limits)
            assert found.tokens == Greedy(model, runner).decode(source, limits).tokens


@BOTH
@pytest.mark.parametrize("kept", [None, 9])
def test_limits_hold_for_a_drafter_alone_that_was_used_under_others_before(graphs, kept):
    """A table that the runner keeps for the next session is of one set of limits."""
    decoder = Draft(tiny_model(1, torch.float32), tiny_drafter(1, torch.float32, kept=kept), graphs("fp32", 1))
    source = random_source(3, 6, seed=1)
    banned = {token for tokens in decoder.decode(source, Limits(max_length=6)).tokens for token in tokens}
    found = decoder.decode(source, Limits(max_length=6, banned=tuple(banned))).tokens
    assert banned
    assert not banned & {token for tokens in found for token in tokens}


def train_a_little(objective: Any, model: Any, prepared: Any, updates: int) -> list[float]:
    """Some updates of a drafter along its gradient, none of them long; losses per token."""
    losses = []
    for _ in range(updates):
        model.drafter.zero_grad()
        loss = objective.loss(model, prepared).total / prepared.tokens
        loss.backward()
        gradients = [(weight, weight.grad) for weight in model.drafter.parameters() if weight.grad is not None]
        length = torch.stack([gradient.norm() for _, gradient in gradients]).norm()
        with torch.no_grad():
            for weight, gradient in gradients:
                weight.sub_(gradient * (0.3 / length))
        losses.append(float(loss.detach()))
    return losses


# --- training --------------------------------------------------------------------------------------------------------


@settings(max_examples=6)
@given(seed=st.integers(0, 1000), identity=st.booleans(), kind=KINDS, glance=st.sampled_from([0.0, 0.5]))
def test_all_ids_kept_have_the_loss_of_a_plain_drafter(seed, identity, kind, glance):
    model, drafter, other, own, order = translated(seed, torch.float64, identity, **kind)
    objective = DrafterObjective(DrafterObjectiveOptions(glance_first=glance, glance_last=glance))
    batch = make_batch([7, 3, 1], [4, 6, 2], seed)
    # Padding is told by lengths alone: 0 may be any id of a verifier's.
    renamed = replace(batch, source=order[batch.source], target=order[batch.target])
    blank = replace(renamed, target=torch.where(batch.target == 0, 0, renamed.target))
    losses = []
    for verifier, one, fed in ((model, drafter, batch), (other, own, renamed), (other, own, blank)):
        prepared = objective.prepare(fed, torch.Generator().manual_seed(seed), 0.5)
        losses.append(objective.loss(DrafterWithVerifier(verifier, one).train(), prepared))
    for loss in losses[1:]:
        torch.testing.assert_close(loss.total, losses[0].total)
        assert {name: float(value) for name, value in loss.figures.items()} == pytest.approx(
            {name: float(value) for name, value in losses[0].figures.items()}
        )


def test_what_is_not_kept_is_read_as_unknown_has_no_loss_and_is_a_miss():
    special = SPECIALS["nllb"]
    words = ordinary(special)
    drafter = keeping(words[:2], special=special, block=3, link=2).requires_grad_(True)
    model = DrafterWithVerifier(tiny_model(encoder_layers=2, special=special), drafter).eval()
    target = torch.tensor([[words[0], words[5], words[1], special.eos]])
    lengths = torch.tensor([4])
    batch = Batch(target, target, lengths, lengths, torch.arange(1))
    objective = DrafterObjective(DrafterObjectiveOptions(label_smoothing=0.0))
    prepared = objective.prepare(batch, torch.Generator())
    prepared.tensors["prefix"] = torch.tensor([[1]])
    heard: list[Any] = []
    drafter.register_forward_pre_hook(lambda module, inputs: heard.append(inputs[0]))
    drafter.token_loss.register_forward_pre_hook(lambda module, inputs: heard.append(inputs[2]))
    loss = objective.loss(model, prepared)
    assert heard[0][0, :4].tolist() == [5, 4, 4, 4]
    assert heard[1].tolist() == [[0, 6, EOS]]
    assert float(loss.figures["run"]) == 0
    loss.total.backward()
    assert drafter.target_embedding.weight.grad is not None


@pytest.mark.parametrize("name", sorted(SPECIALS))
def test_training_lowers_the_loss_whatever_the_special_ids_are(name):
    special = SPECIALS[name]
    words = ordinary(special)
    model = tiny_model(1, torch.float32, encoder_layers=2, special=special)
    drafter = keeping(words[:4], 1, torch.float32, special=special, link=3, encoder="shared", verifier_width=16)
    with torch.no_grad():
        for weight in drafter.parameters():
            weight.mul_(0.3)
    trained = DrafterWithVerifier(model, drafter.requires_grad_(True)).train()
    source = foreign_source(special, 6, 1)
    batch = Batch(source.ids, source.ids, source.lengths, source.lengths, torch.arange(6))
    objective = DrafterObjective(DrafterObjectiveOptions(glance_first=0.0, glance_last=0.0, label_smoothing=0.0))
    prepared = objective.prepare(batch, torch.Generator().manual_seed(0))
    losses = train_a_little(objective, trained, prepared, 6)
    assert losses[-1] < losses[0] * 0.9


def test_a_plain_drafter_is_not_trained_on_special_ids_it_does_not_know():
    special = SPECIALS["marian"]
    with pytest.raises(OptionError, match=r"expects ids of its own \(kept\), found none"):
        DrafterWithVerifier(tiny_model(special=special), tiny_drafter(special=special))


# --- which are kept --------------------------------------------------------------------------------------------------


@given(name=st.sampled_from(sorted(SPECIALS)), ids=st.lists(st.integers(0, VOCABULARY - 1)), most=st.integers(5, 14))
def test_the_most_frequent_ids_are_kept(name, ids, most):
    special = SPECIALS[name]
    counts = count_ids(np.array([*ids, special.eos], dtype=np.int32), VOCABULARY)
    kept = most_frequent(counts, special, most)
    chosen, words = kept.ids.tolist(), ordinary(special)
    assert len(chosen) == min(most - 5, len({*ids} & {*words}))
    left = [int(counts[id]) for id in words if id not in chosen]
    assert all(int(counts[id]) >= max(left, default=0) for id in chosen)
    assert sorted(chosen, key=lambda id: (-int(counts[id]), id)) == chosen
    drafted = [id for id in [*ids, special.eos] if id in {*chosen, special.eos}]
    assert kept.coverage == pytest.approx(len(drafted) / (len(ids) + 1))
    assert sorted(most_frequent(counts, special).ids.tolist()) == words


@given(name=st.sampled_from(sorted(SPECIALS)), count=st.integers(0, 6))
def test_there_and_back_again(name, count):
    special = SPECIALS[name]
    ids = ordinary(special)[:count]
    kept = torch.tensor([*reserved_ids(special), *ids])
    own = own_ids_of(kept, VOCABULARY, special)
    for id in (*ids, special.eos):
        assert int(kept[own[id]]) == id
    others = set(range(VOCABULARY)) - {*ids, *reserved_ids(special)}
    assert all(int(own[id]) == UNK for id in others)


def test_a_recipe_chooses_the_ids_of_its_targets():
    kind, special = OBJECTIVES["drafter"], SPECIALS["nllb"]
    targets = np.array([5, 6, 6, 7, 7, 7, 2], dtype=np.int32)
    base = tiny_model(special=special, width=16)
    settings = {"width": 16, "heads": 2, "feed_forward": 8, "decoder_layers": 1, "encoder": "shared", "link": 2}
    plan = Plan({**settings, "kept": 7, "begin": "verifier"}, 99, {"model": base}, "here", special=special)
    drafter = kind.model(replace(plan, targets=targets)).drafter
    assert drafter.kept_ids.tolist() == [1, 3, 2, 2, 1, 7, 6]
    assert torch.equal(drafter.target_embedding.weight[5], base.target_embedding.weight[7].float())
    every = kind.model(replace(plan, settings=settings, targets=targets)).drafter
    assert every.options.kept == VOCABULARY - 3 + 5  # other special ids than ours: all are kept
    ours = kind.model(Plan(settings, 99, {"model": tiny_model()}, "here", targets=targets)).drafter
    assert ours.kept_ids is None


def test_a_table_begins_as_the_verifiers_output_projection():
    model = tiny_model(1, scale_logits=True, tie="none", source_vocabulary=VOCABULARY)
    drafter = keeping([9, 5], encoder="shared")
    begin_as(drafter, model)
    torch.testing.assert_close(drafter.target_embedding.weight[5:], model.output_embedding.weight[[9, 5]] / 4)
    assert drafter.kept_ids.tolist() == [0, 1, 2, 3, 4, 9, 5]


# --- fitting together ------------------------------------------------------------------------------------------------


def test_a_folder_keeps_the_ids(tmp_path):
    path = write_drafted(tmp_path / "model", kept=9)
    translator = load(path, precision="fp64", device="cpu")
    drafter = translator.parts_of("draft-verify")["drafter"]
    assert drafter.kept_ids.tolist() == [*range(9)]
    assert drafter.own_ids.tolist() == [*range(9), *[UNK] * (drafter.options.vocabulary - 9)]
    greedy = [str(line) for line in translator.translate(LINES, "greedy")]
    assert [str(line) for line in translator.translate(LINES)] == greedy


@pytest.mark.parametrize(("place", "id"), [(7, 10**6), (7, -1), (EOS, 5)])
def test_kept_ids_that_a_verifier_does_not_have_are_refused(tmp_path, place, id):
    drafter = keeping([5, 6, 7])
    broken = drafter.kept_ids.clone()
    broken[place] = id
    with pytest.raises(ModelFolderError, match=r"weights: kept_ids expects ids from 0 to 10, 3 \(eos\) in place 3"):
        fill(drafter, {**drafter.state_dict(), "kept_ids": broken}, tmp_path / "weights")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: DrafterOptions(vocabulary=20, kept=21),
            "kept expects at most 20 ids with a vocabulary of 20, found 21",
        ),
        (
            lambda: DrafterOptions(vocabulary=20, kept=4),
            "kept expects a whole number from 5 to 10000000 or none, found 4",
        ),
        (lambda: DrafterOptions(vocabulary=4, kept=5), "vocabulary expects more ids than the largest special one, 4"),
        (lambda: keeping([5]).keep(torch.tensor([5, 6])), "6 own ids expects 1 to keep, found 2"),
        (lambda: tiny_drafter().keep(torch.tensor([5])), "None own ids"),
        (lambda: keeping([11]), "kept_ids expects ids from 0 to 10"),
        (
            lambda: DraftVerify(tiny_model(special=SPECIALS["t5"]), keeping([5]), RUNNER),
            "expects its verifier's special ids",
        ),
        (
            lambda: DraftVerify(tiny_model(tie="target", source_vocabulary=30), keeping([5], encoder="shared"), RUNNER),
            "or soft copy expects one vocabulary for source and target, found two",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, words):
    with pytest.raises(OptionError, match=re.escape(words)):
        make()


@pytest.mark.parametrize("encoder", [{"encoder": "shared"}, {"encoder": "partial", "shared_layers": 1}])
def test_a_vocabulary_of_the_source_alone_is_not_read(encoder):
    """Its ids go beyond the target's table."""
    model = tiny_model(2, sharpness=2.0, encoder_layers=2, tie="target", source_vocabulary=40)
    source = Source.of([[39, 20, EOS], [15, EOS]])
    drafter = keeping([5, 8, 9], soft_copy=False, link=2, **encoder)
    expected = Greedy(model, RUNNER).decode(source, Limits(max_length=9)).tokens
    assert DraftVerify(model, drafter, RUNNER).decode(source, Limits(max_length=9)).tokens == expected
    trained = DrafterWithVerifier(model, drafter)
    objective = DrafterObjective(DrafterObjectiveOptions())
    batch = make_batch([3, 2], [3, 2])
    batch = replace(batch, source=source.ids, source_lengths=source.lengths)
    assert objective.loss(trained, objective.prepare(batch, torch.Generator())).total.isfinite()
