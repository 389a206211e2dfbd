"""The scorer: what a slot may see, and all edges at once against one forward pass per edge."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, START, Batch, OptionError
from longstride.systems.lattice import scoring
from longstride.systems.lattice.model import LatticeModel, Scorer, ScorerOptions
from longstride.systems.lattice.objective import (
    LatticeObjective,
    LatticeObjectiveOptions,
    segment_inputs,
    segment_mask,
    segments,
)
from longstride.systems.lattice.scoring import (
    encode,
    fits_kernels,
    score_edges,
    score_triples,
    unigrams,
    unigrams_of,
)
from tests.lattice.models import VOCABULARY, tiny_scorer
from tests.models import random_source, tiny_model

LENGTH = 9
HEADS: list[dict[str, object]] = [
    {},
    {"scale_attention": False},
    {"key_value_heads": 1},
    {"head": 4},
    {"embedding_norm": True},
]
"""an ordinary Transformer's, and what else a recipe may ask for"""


def _logits(model: Scorer, target: torch.Tensor, segment: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    memory = model.encode(source, None)
    return model.logits(model.decode(segment_inputs(target, segment, START), memory, None, mask=segment_mask(segment)))


def test_segments_begin_at_the_offset_and_every_order_slots_after():
    assert segments(torch.tensor([0, 1, 2]), 3, 7).tolist() == [
        [0, 0, 0, 1, 1, 1, 2],
        [-1, 0, 0, 0, 1, 1, 1],
        [-1, -1, 0, 0, 0, 1, 1],
    ]
    assert segments(torch.tensor([0, 1]), torch.tensor([2, 3]), 5).tolist() == [[0, 0, 1, 1, 2], [-1, 0, 0, 0, 1]]


def test_a_segment_begins_with_start():
    target = torch.tensor([[5, 6, 7, 8, 9, 10]])
    assert segment_inputs(target, segments(torch.tensor([1]), 3, 6), START).tolist() == [[START, START, 6, 7, START, 9]]


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), order=st.integers(2, 4), offset=st.integers(0, 3), changed=st.integers(0, LENGTH - 1))
def test_logits_do_not_see_words_outside_their_segment(seed, order, offset, changed):
    """Of the words before it a slot's logits depend on exactly those in its own segment."""
    model = tiny_scorer(seed, order=order)
    rng = torch.Generator().manual_seed(seed)
    target = torch.randint(5, VOCABULARY, (1, LENGTH), generator=rng)
    source = torch.randint(5, VOCABULARY, (1, 4), generator=rng)
    segment = segments(torch.tensor([offset % order]), order, LENGTH)
    other = target.clone()
    other[0, changed] = 5 + (target[0, changed] - 4) % (VOCABULARY - 5)
    before, after = _logits(model, target, segment, source), _logits(model, other, segment, source)
    differs = (before != after).any(dim=-1)[0].tolist()
    for slot in range(LENGTH):
        # Slot s reads word s - 1, so that word w is read by slots w + 1, ... of the segment that slot w + 1 is in.
        inside = changed + 1 <= slot and segment[0, slot] == segment[0, changed + 1]
        begins = inside and segment[0, changed] != segment[0, changed + 1]
        assert differs[slot] == (inside and not begins), (slot, segment.tolist())


@settings(max_examples=10)
@given(
    seed=st.integers(0, 1000),
    layers=st.integers(1, 3),
    norm=st.sampled_from(["post", "pre"]),
    head=st.sampled_from(HEADS),
)
@example(seed=0, layers=1, norm="post", head=HEADS[1])
@example(seed=0, layers=1, norm="post", head=HEADS[2])
@example(seed=0, layers=1, norm="post", head=HEADS[3])
def test_edges_equal_single_forward_passes(seed, layers, norm, head):
    """Each edge by a forward pass of its own: START in the slot before, the word in its slot."""
    model = tiny_scorer(seed, decoder_layers=layers, norm=norm, **head)
    source = random_source(3, 5, seed=seed)
    words = torch.stack([torch.randperm(VOCABULARY - 5)[:3] + 5 for _ in range(12)]).view(3, 4, 3)
    found = score_edges(model, encode(model, source.ids, source.lengths, True), words)
    for row in range(3):
        ids = source.ids[row : row + 1, : source.lengths[row]]
        memory = model.encode(ids, None)
        following = torch.cat([words[row], torch.full((4, 1), EOS)], dim=1)
        hidden = model.decode(torch.tensor([[START]]), memory, None)
        expected = model.logits(hidden)[0, 0].log_softmax(-1)[following[0]]
        torch.testing.assert_close(found.first[row], expected)
        for column in range(1, 4):
            for place, word in enumerate(words[row, column - 1].tolist()):
                slots = torch.tensor([column - 1, column])
                hidden = model.decode(torch.tensor([[START, word]]), memory, None, positions=slots)
                expected = model.logits(hidden)[0, 1].log_softmax(-1)[following[column]]
                torch.testing.assert_close(found.edges[row, column - 1, place], expected)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_kernels_score_by_an_ordinary_head_alone(head):
    assert fits_kernels(tiny_scorer(0, **head)) == (head == {})


@settings(max_examples=5)
@given(seed=st.integers(0, 1000), layers=st.integers(1, 2), head=st.sampled_from(HEADS))
@example(seed=0, layers=1, head=HEADS[1])
def test_triples_equal_single_forward_passes(seed, layers, head):
    model = tiny_scorer(seed, decoder_layers=layers, **head)
    source = random_source(2, 4, seed=seed)
    words = torch.stack([torch.randperm(VOCABULARY - 5)[:2] + 5 for _ in range(8)]).view(2, 4, 2)
    encoded = encode(model, source.ids, source.lengths, True)
    found, single = score_triples(model, encoded, words), score_edges(model, encoded, words)
    torch.testing.assert_close(found.first, single.first)
    torch.testing.assert_close(found.edges, single.edges[:, :1])
    assert found.triples is not None
    for row in range(2):
        memory = model.encode(source.ids[row : row + 1, : source.lengths[row]], None)
        following = torch.cat([words[row], torch.full((4, 1), EOS)], dim=1)
        for column in (2, 3):
            slots = torch.arange(column - 2, column + 1)
            for one, earlier in enumerate(words[row, column - 2].tolist()):
                for other, later in enumerate(words[row, column - 1].tolist()):
                    hidden = model.decode(torch.tensor([[START, earlier, later]]), memory, None, positions=slots)
                    expected = model.logits(hidden)[0, 2].log_softmax(-1)[following[column]]
                    torch.testing.assert_close(found.triples[row, column - 2, one, other], expected)


def test_training_and_scoring_agree():
    """The second slot of a trained segment and the edge of a lattice are one number."""
    model = tiny_scorer(3)
    source, target = torch.tensor([[5, 6, 7, EOS]]), torch.tensor([[8, 9, 10, 5, EOS]])
    segment = segments(torch.tensor([1]), 3, 5)
    trained = _logits(model, target, segment, source).log_softmax(-1)
    found = score_edges(model, encode(model, source, torch.tensor([4]), False), target[:, :4, None])
    torch.testing.assert_close(found.edges[0, 1, 0, 0], trained[0, 2, 10])  # slots 1, 2, 3 are a segment
    torch.testing.assert_close(
        unigrams(model, encode(model, source, torch.tensor([4]), False), 5).log_softmax(-1)[0, 4], trained[0, 4]
    )


def test_portions_change_nothing(monkeypatch):
    model = tiny_scorer(1)
    source = random_source(3, 5)
    words = torch.randint(5, VOCABULARY, (3, 6, 4))
    encoded = encode(model, source.ids, source.lengths, True)
    whole = score_edges(model, encoded, words)
    monkeypatch.setattr(scoring, "MAX_LOGITS_CPU", 1)
    torch.testing.assert_close(score_edges(model, encoded, words).edges, whole.edges)


def test_normalised_over_candidates():
    """A softmax over the column's own words and EOS: the same differences, and a sum of one."""
    model = tiny_scorer(1)
    encoded = encode(model, torch.tensor([[5, 6, EOS]]), torch.tensor([3]), False)
    words = torch.tensor([[[5, 6, 7], [8, 9, 0], [6, 10, 5]]])
    whole, alone = (score_edges(model, encoded, words, kind) for kind in ("vocabulary", "candidates"))
    torch.testing.assert_close(alone.edges.exp().sum(-1), torch.ones(1, 2, 3, dtype=torch.float64))
    torch.testing.assert_close(alone.edges[0, 1].diff(dim=-1), whole.edges[0, 1].diff(dim=-1))
    assert (alone.edges[0, 0, :, 2] == -float("inf")).all()  # no word there


def test_a_rest_is_shared_with_and_leads_nowhere():
    """Edges between some of the candidates are those between all of them, where the others are the rest."""
    model = tiny_scorer(1)
    encoded = encode(model, torch.tensor([[5, 6, EOS]]), torch.tensor([3]), False)
    words = torch.tensor([[[5, 6, 7, 0], [8, 9, 0, 0], [6, 10, 5, 7]]])
    for scored, name in ((score_edges, "edges"), (score_triples, "triples")):
        whole = scored(model, encoded, words, "candidates")
        some = scored(model, encoded, words[..., :2], "candidates", words[..., 2:])
        kept = torch.tensor([0, 1, 4])  # and EOS, which is last
        torch.testing.assert_close(some.first, whole.first[:, kept])
        theirs = getattr(whole, name)[:, :, :2]
        theirs = theirs[..., kept] if name == "edges" else theirs[:, :, :, :2][..., kept]
        torch.testing.assert_close(getattr(some, name), theirs)


def test_unigrams_of_candidates_are_those_of_all_words():
    model = tiny_scorer(2)
    encoded = encode(model, torch.tensor([[5, 6, EOS]]), torch.tensor([3]), False)
    words = torch.tensor([[[5, 6, 7], [8, 9, 0]]])
    torch.testing.assert_close(unigrams_of(model, encoded, words), unigrams(model, encoded, 2).gather(-1, words))


# --- training --------------------------------------------------------------------------------------------------------


def _batch() -> Batch:
    lengths = torch.tensor([5, 3])
    target = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, 0, 0]])
    return Batch(target, target, lengths, lengths, torch.arange(2))


def test_loss_is_the_sum_over_words_each_given_its_segment():
    model = LatticeModel(tiny_scorer(2), torch.nn.Module()).train()
    objective = LatticeObjective(LatticeObjectiveOptions(label_smoothing=0.0))
    prepared = objective.prepare(_batch(), torch.Generator().manual_seed(0))
    loss = objective.loss(model, prepared)
    expected = torch.zeros((), dtype=torch.float64)
    batch = _batch()
    for row in range(2):
        length = int(batch.target_lengths[row])
        target = batch.target[row : row + 1, :length]
        segment = segments(prepared.tensors["offset"][row : row + 1] % 3, 3, length)
        logits = _logits(model.model, target, segment, batch.source[row : row + 1, :length])
        expected -= logits.log_softmax(-1)[0].gather(1, target[0, :, None]).sum()
    torch.testing.assert_close(loss.total, expected)
    assert prepared.tokens == 8


def test_offsets_differ_and_are_drawn_from_the_generator_alone():
    objective = LatticeObjective(LatticeObjectiveOptions())
    one, same, other = (objective.prepare(_batch(), torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one.tensors["offset"], same.tensors["offset"])
    assert not torch.equal(one.tensors["offset"], other.tensors["offset"])


def test_validation_tells_each_order():
    model = LatticeModel(tiny_scorer(2), torch.nn.Module()).eval()
    objective = LatticeObjective(LatticeObjectiveOptions())
    loss = objective.loss(model, objective.prepare(_batch(), torch.Generator().manual_seed(0)))
    assert set(loss.figures) == {"nll", "nll_1", "nll_2", "nll_3"}


def test_segments_of_drawn_length():
    model = LatticeModel(tiny_scorer(2), torch.nn.Module()).train()
    objective = LatticeObjective(LatticeObjectiveOptions(shortest=2))
    assert objective.loss(model, objective.prepare(_batch(), torch.Generator().manual_seed(0))).total.isfinite()
    longer = LatticeObjective(LatticeObjectiveOptions(shortest=4))
    with pytest.raises(OptionError, match="at most the model's order 3"):
        longer.loss(model, longer.prepare(_batch(), torch.Generator()))


def test_a_frozen_encoder_reads_without_dropout_and_without_gradients():
    scorer = tiny_scorer(2, dtype=torch.float32, dropout=0.5).requires_grad_(True)
    model = LatticeModel(scorer, torch.nn.Module()).train()
    ids = torch.tensor([[5, 6, EOS]])
    assert not torch.equal(model.encode(ids, None), model.encode(ids, None))
    scorer.encoder.requires_grad_(False)
    assert model.encode(ids, None).requires_grad  # embeddings are tied, and learn through it
    scorer.target_embedding.requires_grad_(False)
    assert torch.equal(model.encode(ids, None), model.encode(ids, None))
    assert not model.encode(ids, None).requires_grad
    assert scorer.dropout.training


def test_tables_are_no_part_of_the_trained_state():
    model = LatticeModel(tiny_scorer(), torch.nn.Linear(2, 2))
    assert all(name.startswith("model.") for name in model.state_dict())
    assert isinstance(model.tables, torch.nn.Linear)


def test_starts_as_an_ordinary_transformer():
    """Names and shapes of the head are those of a deeper decoder's first layers."""
    ordinary = tiny_model(decoder_layers=2).state_dict()
    head = tiny_scorer(decoder_layers=1).state_dict()
    assert all(ordinary[name].shape == weight.shape for name, weight in head.items())


def test_bad_order():
    with pytest.raises(OptionError, match="order expects a whole number from 2 to 16, found 1"):
        ScorerOptions(vocabulary=11, order=1)
