"""The drafter's training: canvases that never tell the length, no loss past the end, glancing by the letter."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, MASK, PAD, START, Batch, OptionError
from longstride.objectives import OBJECTIVES, Plan
from longstride.systems.draft_verify.model import verifier_states
from longstride.systems.draft_verify.objective import (
    DrafterObjective,
    DrafterObjectiveOptions,
    DrafterWithVerifier,
    cut,
    random_prefixes,
    reveal,
)
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.models import tiny_model

BLOCK = 4


def make_batch(lengths: list[int], source_lengths: list[int], seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def side(lengths: list[int]) -> torch.Tensor:
        ids = torch.randint(5, 11, (len(lengths), max(lengths)), generator=generator)
        columns, ends = torch.arange(max(lengths)), torch.tensor(lengths)[:, None]
        ids = torch.where(columns == ends - 1, EOS, ids)
        return torch.where(columns < ends, ids, PAD)

    rows = torch.arange(len(lengths))
    return Batch(side(source_lengths), side(lengths), torch.tensor(source_lengths), torch.tensor(lengths), rows)


def composite(seed: int = 0, **changes: Any) -> DrafterWithVerifier:
    drafter = tiny_drafter(seed, block=BLOCK, **changes).requires_grad_(True)
    return DrafterWithVerifier(tiny_model(seed, encoder_layers=2), drafter)


def prepared_with(objective: DrafterObjective, batch: Batch, prefix: list[int], seed: int = 0) -> Any:
    prepared = objective.prepare(batch, torch.Generator().manual_seed(seed), 0.5)
    prepared.tensors["prefix"] = torch.tensor(prefix)[:, None]
    return prepared


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(lengths=LENGTHS, seed=st.integers(0, 1000))
def test_a_prefix_leaves_at_least_one_token(lengths, seed):
    prefix = random_prefixes(torch.tensor(lengths), torch.Generator().manual_seed(seed))
    assert all(0 <= p < length for p, length in zip(prefix.tolist(), lengths, strict=True))


def test_every_prefix_is_about_as_likely():
    prefix = random_prefixes(torch.full((4000,), 4), torch.Generator().manual_seed(1))
    counts = torch.bincount(prefix, minlength=4)
    assert ((counts - 1000).abs() < 120).all()


@given(lengths=LENGTHS, block=st.integers(1, 6), seed=st.integers(0, 1000))
def test_the_canvas_is_a_prefix_and_always_k_masks(lengths, block, seed):
    batch = make_batch(lengths, lengths, seed)
    prefix = random_prefixes(batch.target_lengths, torch.Generator().manual_seed(seed))
    canvas = cut(batch.target, prefix, block, torch.full((len(lengths), block), MASK))
    for row, length in enumerate(lengths):
        p, target = int(prefix[row]), batch.target[row, :length].tolist()
        assert canvas[row, : p + block].tolist() == [*target[:p], *[MASK] * block]
        assert (canvas[row, p + block :] == PAD).all()


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), kind=KINDS, longer=st.integers(0, 20))
def test_what_lies_beyond_the_prefix_never_reaches_the_drafter(seed, kind, longer):
    """Another tail, another length, a longer neighbour: the drafter's states are the same."""
    model = composite(seed, **kind).eval()
    drafter, prefix = model.drafter, torch.tensor([2])
    source, start = torch.tensor([[5, 7, EOS]]), [6, 8]
    states = None
    if drafter.options.encoder != "own":
        states = model.model.encode(source, None)
    seen = []
    for tail in ([EOS], [9] * longer + [EOS]):
        target = torch.tensor([[*start, *tail]])
        canvas = cut(target, prefix, BLOCK, torch.full((1, BLOCK), MASK))
        seen.append(drafter(canvas, prefix, BLOCK, source, None, states))
    torch.testing.assert_close(seen[0], seen[1], atol=1e-10, rtol=1e-10)


@given(data=st.data(), rows=st.integers(1, 4), ratio=st.sampled_from([0.0, 0.3, 0.45, 0.5, 0.9]))
def test_glancing_reveals_just_so_many_valid_slots(data, rows, ratio):
    ids = st.lists(st.integers(5, 7), min_size=6, max_size=6)
    found = torch.tensor([data.draw(ids) for _ in range(rows)])
    wanted = torch.tensor([data.draw(ids) for _ in range(rows)])
    valid = torch.tensor([data.draw(st.integers(1, 6)) for _ in range(rows)])
    wanted = torch.where(torch.arange(6) < valid[:, None], wanted, PAD)
    chance = torch.rand(rows, 6, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    shown = reveal(found, wanted, chance, torch.tensor(ratio, dtype=torch.float64))
    wrong = ((found != wanted) & (wanted != PAD)).sum(dim=1).tolist()
    assert shown.sum(dim=1).tolist() == [math.floor(ratio * count) for count in wrong]
    assert not (shown & (wanted == PAD)).any()
    for row in range(rows):  # those of the least chance, whether wrong or not
        order = sorted(range(int(valid[row])), key=lambda slot: float(chance[row, slot]))
        assert set(shown[row].nonzero()[:, 0].tolist()) == set(order[: int(shown[row].sum())])


def test_the_revealed_share_falls_along_the_training():
    objective = DrafterObjective(DrafterObjectiveOptions())
    batch = make_batch([3], [3])
    for progress, ratio in ((0.0, 0.5), (0.5, 0.4), (1.0, 0.3)):
        prepared = objective.prepare(batch, torch.Generator(), progress)
        assert float(prepared.tensors["ratio"]) == pytest.approx(ratio)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), kind=KINDS)
def test_evaluation_is_plain_cross_entropy_of_the_blocks_tokens(seed, kind):
    """No glancing, nothing past EOS, the mean times the batch's tokens; figures are what they say."""
    model = composite(seed, **kind).eval()
    objective = DrafterObjective(DrafterObjectiveOptions(label_smoothing=0.0))
    batch = make_batch([7, 3, 1], [4, 6, 2], seed)
    prepared = prepared_with(objective, batch, [1, 2, 0])
    with torch.no_grad():
        loss = objective.loss(model, prepared)
    total, right, run, tokens = 0.0, 0, 0, 0
    for row, p in enumerate([1, 2, 0]):
        source = batch.source[row : row + 1, : batch.source_lengths[row]]
        target = batch.target[row, : batch.target_lengths[row]].tolist()
        states = None
        if model.drafter.options.encoder != "own":
            below = model.drafter.options.shared_layers
            states = model.model.embed_source(source)
            for layer in list(model.model.encoder.layers)[:below]:
                states = layer(states, None)
        canvas = torch.tensor([[*target[:p], *[MASK] * BLOCK]])
        hidden = model.drafter(canvas, torch.tensor([p]), BLOCK, source, None, states)
        scores = model.drafter.logits(hidden)[0]
        if model.drafter.link is not None:
            known = [START, *target][p : p + BLOCK]
            for slot, before in enumerate(known):
                asked = model.drafter.link.asked(hidden[0, slot], torch.tensor(before))
                scores[slot] += model.drafter.link.after.weight @ asked
        scores = scores.log_softmax(-1).detach()
        going = True
        for slot, token in enumerate(target[p : p + BLOCK]):
            total -= float(scores[slot, token])
            hit = int(scores[slot].argmax()) == token
            going = going and hit
            right, run, tokens = right + hit, run + going, tokens + 1
    assert float(loss.total) / prepared.tokens == pytest.approx(total / tokens)
    assert float(loss.figures["right"]) / prepared.tokens == pytest.approx(right / tokens)
    assert float(loss.figures["run"]) / prepared.tokens == pytest.approx(run / 3)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), longer=st.integers(0, 6))
def test_slots_past_the_end_carry_no_loss(seed, longer):
    """More padding behind a target changes nothing; neither does what the drafter says past EOS."""
    model = composite(seed).eval()
    objective = DrafterObjective(DrafterObjectiveOptions())
    batch = make_batch([3, 2], [3, 3], seed)
    padded = torch.nn.functional.pad(batch.target, (0, longer))
    wider = Batch(batch.source, padded, batch.source_lengths, batch.target_lengths, batch.index)
    with torch.no_grad():
        totals = [objective.loss(model, prepared_with(objective, one, [1, 1])).total for one in (batch, wider)]
    torch.testing.assert_close(totals[0], totals[1])


@pytest.mark.parametrize("prefix", ["causal", "full"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_a_target_may_be_as_long_as_a_text(positions, prefix):
    """Its canvas is aligned past the last position that the drafter has; with more of them the loss is the same."""
    longest = 10
    tight, roomy = (composite(3, longest=each, positions=positions, prefix=prefix).eval() for each in (longest, 64))
    drafters = tight.drafter, roomy.drafter
    own = {name: weight for name, weight in drafters[0].state_dict().items() if "positions" not in name}
    drafters[1].load_state_dict(own, strict=False)
    if positions == "learned":
        with torch.no_grad():
            for name in ("source_positions", "target_positions"):
                few = getattr(drafters[0], name).weight
                getattr(drafters[1], name).weight[: len(few)] = few
    objective = DrafterObjective(DrafterObjectiveOptions())
    for cut_at in (0, 5, longest - 1):
        prepared = prepared_with(objective, make_batch([longest, 4], [6, 3]), [cut_at, 2])
        found, expected = (float(objective.loss(model, prepared).total.detach()) for model in (tight, roomy))
        assert found == pytest.approx(expected, abs=1e-10)


def test_revealed_slots_are_read_and_not_asked_for():
    """In training mode, the second pass reads what was revealed; its loss covers the rest alone."""
    model = composite(3).train()
    objective = DrafterObjective(DrafterObjectiveOptions(glance_first=0.99, glance_last=0.99, label_smoothing=0.0))
    batch = make_batch([9, 9, 9, 9], [5, 5, 5, 5])
    canvases: list[torch.Tensor] = []
    model.drafter.register_forward_pre_hook(lambda module, inputs: canvases.append(inputs[0]))
    asked: list[torch.Tensor] = []
    model.drafter.token_loss.register_forward_pre_hook(lambda module, inputs: asked.append(inputs[2]))
    loss = objective.loss(model, prepared_with(objective, batch, [0, 1, 2, 3]))
    first, second = canvases
    for row, p in enumerate([0, 1, 2, 3]):
        block = slice(p, p + BLOCK)
        assert (first[row, block] == MASK).all()
        for slot, token in enumerate(batch.target[row, block].tolist()):
            shown = int(second[row, p + slot]) == token
            assert int(asked[0][row, slot]) == (PAD if shown else token)
    assert (second != first).any()
    loss.total.backward()
    assert model.drafter.copy.weight.grad is not None
    assert all(weight.grad is None for weight in model.model.parameters())


def test_without_glancing_there_is_one_pass_and_nothing_is_revealed():
    model = composite(3).train()
    plain = DrafterObjective(DrafterObjectiveOptions(glance_first=0.0, glance_last=0.0))
    batch, passes = make_batch([9, 4], [5, 5]), []
    model.drafter.register_forward_pre_hook(lambda module, inputs: passes.append(torch.is_grad_enabled()))
    loss = plain.loss(model, prepared_with(plain, batch, [0, 1]))
    assert passes == [True]
    loss.total.backward()
    assert model.drafter.copy.weight.grad is not None
    torch.testing.assert_close(loss.total, plain.loss(model.eval(), prepared_with(plain, batch, [0, 1])).total)


def test_slots_count_less_and_less():
    """With decay d the loss is the mean over slots in which slot i counts d^i."""
    model, batch = composite(4).train(), make_batch([9, 3], [5, 5])
    losses: list[torch.Tensor] = []
    for last in range(1, BLOCK + 1):  # one slot at a time, by targets that end where the others would begin
        plain = DrafterObjective(DrafterObjectiveOptions(glance_first=0.0, glance_last=0.0))
        prepared = prepared_with(plain, batch, [1, 1])
        asked: list[torch.Tensor] = []
        hook = model.drafter.token_loss.register_forward_pre_hook(
            lambda module, inputs, last=last: (
                *inputs[:4],
                inputs[4] & (torch.arange(BLOCK) == last - 1),
                *inputs[5:],
            )
        )
        seen = model.drafter.token_loss.register_forward_hook(
            lambda module, inputs, output, asked=asked: asked.append(output[0])
        )
        plain.loss(model, prepared)
        hook.remove()
        seen.remove()
        losses.append(asked[0])
    objective = DrafterObjective(DrafterObjectiveOptions(glance_first=0.0, glance_last=0.0, decay=0.5))
    counts = torch.tensor([2.0, 2.0, 1.0, 1.0])  # the second row has two tokens after its prefix
    weights = 0.5 ** torch.arange(BLOCK)
    expected = (torch.stack(losses) * weights).sum() / (counts * weights).sum()
    found = objective.loss(model, prepared_with(objective, batch, [1, 1]))
    torch.testing.assert_close(found.total / 12, expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), decay=st.floats(0.05, 1.0), length=st.integers(2, BLOCK))
def test_one_slot_that_is_left_counts_whole_wherever_it_stands(seed, decay, length):
    """The loss is that slot's own, times the tokens of the batch, however little it would count beside others."""
    model = composite(seed).train()
    options = {"glance_first": 0.99, "glance_last": 0.99, "decay": decay, "label_smoothing": 0.0}
    objective = DrafterObjective(DrafterObjectiveOptions(**options))
    prepared = prepared_with(objective, make_batch([length], [3], seed), [0])
    last = torch.arange(length) == length - 1
    prepared.tensors["chance"] = torch.where(last, 0.9, 0.1)[None]  # all slots before the last are revealed first
    heard: list[tuple[torch.Tensor, torch.Tensor]] = []
    model.drafter.token_loss.register_forward_hook(lambda module, inputs, output: heard.append((inputs[2], output[1])))
    with torch.no_grad():
        loss = objective.loss(model, prepared)
    ((left, nll),) = heard
    assume(int((left != PAD).sum()) == 1)  # the drafter had all of them wrong
    slot = float(decay ** (length - 1))
    torch.testing.assert_close(loss.total, nll / slot * prepared.tokens, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss.figures["nll"], nll / slot * prepared.tokens, rtol=1e-5, atol=1e-6)


CAUSAL = KINDS.filter(lambda kind: kind.get("prefix", "causal") == "causal")


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), kind=CAUSAL, data=st.data())
def test_several_blocks_are_each_as_if_alone(seed, kind, data):
    model = composite(seed, **kind).eval()
    batch = make_batch([9, 5, 1], [4, 7, 2], seed)
    cuts = torch.stack([torch.tensor([data.draw(st.integers(0, n - 1)) for n in (9, 5, 1)]) for _ in range(3)], dim=1)
    filled = torch.full((3, 3 * BLOCK), MASK)
    filled[0, 1], filled[1, BLOCK] = 7, 8  # revealed ones
    visible = torch.arange(7) < batch.source_lengths[:, None]
    states = None
    if model.drafter.options.encoder != "own":
        states = verifier_states(model.model, model.drafter.options, batch.source, visible)
    with torch.no_grad():
        found = model.drafter.several(batch.target, cuts, filled, batch.source, visible, states)
        for number in range(3):
            mine = slice(number * BLOCK, (number + 1) * BLOCK)
            canvas = cut(batch.target, cuts[:, number], BLOCK, filled[:, mine])
            alone = model.drafter(canvas, cuts[:, number], BLOCK, batch.source, visible, states)
            torch.testing.assert_close(found[:, mine], alone, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("glance", [0.0, 0.5])
def test_several_blocks_have_the_mean_of_their_slots(glance):
    """Blocks of one length have the mean of the losses of one block each; what is revealed differs by its chance."""
    model, batch = composite(5).eval(), make_batch([8, 8], [5, 5])
    several = DrafterObjective(DrafterObjectiveOptions(blocks=2, glance_first=glance, glance_last=glance))
    prepared = several.prepare(batch, torch.Generator().manual_seed(1))
    assert prepared.tensors["prefix"].shape == (2, 2)
    prepared.tensors["prefix"] = torch.tensor([[0, 3], [2, 4]])
    one = DrafterObjective(DrafterObjectiveOptions())
    alone = [one.loss(model, prepared_with(one, batch, cuts)) for cuts in ([0, 2], [3, 4])]
    found = several.loss(model, prepared)
    torch.testing.assert_close(found.total, torch.stack([loss.total for loss in alone]).mean())
    for name, value in found.figures.items():
        torch.testing.assert_close(value, torch.stack([loss.figures[name].double() for loss in alone]).mean().to(value))
    trained = several.loss(model.train(), prepared)
    trained.total.backward()
    assert model.drafter.copy.weight.grad is not None
    with pytest.raises(OptionError, match="use prefix: causal"):
        several.loss(composite(5, prefix="full"), prepared)


def test_the_verifier_stays_frozen_and_without_dropout():
    model = DrafterWithVerifier(tiny_model(0, dropout=0.5), tiny_drafter(0, dropout=0.5))
    model.train()
    assert model.drafter.training
    assert not any(module.training for module in model.model.modules())
    assert not any(weight.requires_grad for weight in model.model.parameters())


def test_with_an_encoder_of_its_own_the_verifier_is_not_run():
    model = composite(0).eval()
    model.model.encoder = None
    objective = DrafterObjective(DrafterObjectiveOptions())
    assert objective.loss(model, prepared_with(objective, make_batch([3], [3]), [0])).total.isfinite()


def test_prepare_is_random_by_its_generator_alone():
    objective, batch = DrafterObjective(DrafterObjectiveOptions()), make_batch([9, 8, 7], [3, 3, 3])
    one, same, other = (objective.prepare(batch, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.tensors["prefix"], same.tensors["prefix"])
    assert torch.equal(one.tensors["chance"], same.tensors["chance"])
    assert not torch.equal(one.tensors["chance"], other.tensors["chance"])
    assert one.tokens == 24


@pytest.mark.parametrize("name", ["label_smoothing", "glance_first", "glance_last"])
def test_bad_shares_are_refused(name):
    with pytest.raises(OptionError, match=f"{name} expects a number from 0 to below 1, found 1"):
        DrafterObjectiveOptions(**{name: 1.0})


@pytest.mark.parametrize("decay", [0.0, 1.1])
def test_a_bad_decay_is_refused(decay):
    with pytest.raises(OptionError, match="decay expects a number above 0, at most 1"):
        DrafterObjectiveOptions(decay=decay)


def test_a_recipe_builds_on_its_base():
    base = tiny_model(0, torch.float32)
    settings = {"width": 8, "feed_forward": 16, "heads": 2, "encoder": "shared", "decoder_layers": 1}
    kind = OBJECTIVES["drafter"]
    model = kind.model(Plan(settings, 11, {"model": base}, "toy"))
    assert model.drafter.options.verifier_width == 16
    assert model.drafter.bridge.weight.shape == (8, 16)
    assert set(kind.parts(model)) == {"model", "drafter"}
    with pytest.raises(OptionError, match="toy: expected a base with a Transformer"):
        kind.model(Plan(settings, 11, {}, "toy"))
    partial = {**settings, "encoder": "partial", "shared_layers": 5}
    with pytest.raises(OptionError, match="shared_layers expects 1 to the verifier's 1 encoder layers, found 5"):
        kind.model(Plan(partial, 11, {"model": base}, "toy"))
