"""What one update does: accumulation, clipping, precision, freezing, bad gradients, compilation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from longstride.contract import Batch, BatchSource, Loss, ModelFolderError, OptionError, Prepared, WorkError
from longstride.training.distributed import alone
from longstride.training.naming import freeze, named_state, warm_start
from longstride.training.options import AdamOptions, Schedule, TrainingOptions
from longstride.training.prefetch import Group
from longstride.training.update import Updater, compiled
from tests.training.toys import Listener, ToyModel, ToyObjective, ToySource, same, train_toy, weights

CPU = torch.device("cpu")


class Joined(BatchSource):
    """The batches of another source, `count` at a time in one."""

    def __init__(self, source: ToySource, count: int) -> None:
        self.source, self.count = source, count

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        for first in range(skip * self.count, self.source.batches, self.count):
            last = min(first + self.count, self.source.batches)
            parts = [self.source.batch(number, index) for index in range(first, last)]
            names = ("source", "target", "source_lengths", "target_lengths", "index")
            yield Batch(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def batches_in(self, number: int) -> int:
        return -(-self.source.batches // self.count)


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.allclose(one[name], other[name], rtol=1e-9, atol=1e-12) for name in one)


def test_accumulation_equals_one_big_batch(tmp_path: Path) -> None:
    source, objective = ToySource(batches=7), ToyObjective(noise=0.0)
    small, many = train_toy(
        tmp_path / "a", model=ToyModel().double(), data=source, objective=objective, accumulation=3, clip=0.5
    )
    big, few = train_toy(
        tmp_path / "b", model=ToyModel().double(), data=Joined(source, 3), objective=objective, clip=0.5
    )
    assert close(weights(small), weights(big))
    assert many.tokens == few.tokens
    assert (many.epoch, few.epoch) == (4, 4)


def test_updates_equal_plain_adam(tmp_path: Path) -> None:
    """The whole loop against ten lines of textbook."""
    schedule = Schedule(kind="inverse-sqrt", peak=0.02, warmup=3)
    model, _ = train_toy(
        tmp_path,
        model=ToyModel().double(),
        schedule=schedule,
        clip=0.7,
        epochs=2,
        steps=0,
        optimizer=AdamOptions(beta2=0.99, eps=1e-8),
    )
    from longstride.training.prefetch import generator_for

    twin, objective, source = ToyModel().double(), ToyObjective(), ToySource()
    adam = torch.optim.Adam(twin.parameters(), betas=(0.9, 0.99), eps=1e-8)
    step = 0
    for epoch in range(2):
        for index, batch in enumerate(source.epoch(epoch)):
            step += 1
            prepared = objective.prepare(batch, generator_for(1, epoch, index))
            adam.zero_grad()
            (objective.loss(twin, prepared).total / prepared.tokens).backward()
            nn.utils.clip_grad_norm_(twin.parameters(), 0.7)
            adam.param_groups[0]["lr"] = schedule.rate(step)
            adam.step()
    assert close(weights(model), weights(twin))


def test_weight_decay_spares_vectors(tmp_path: Path) -> None:
    class Nothing(ToyObjective):
        def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
            return Loss(super().loss(model, prepared).total * 0)

    before = weights(ToyModel())
    model, _ = train_toy(
        tmp_path,
        model=ToyModel(),
        objective=Nothing(),
        steps=1,
        schedule=Schedule(kind="constant", peak=0.1, warmup=0),
        optimizer=AdamOptions(weight_decay=0.5),
    )
    after = weights(model)
    assert torch.allclose(after["embedding.weight"], before["embedding.weight"] * 0.95)
    assert torch.equal(after["output.bias"], before["output.bias"])


def test_it_learns(tmp_path: Path) -> None:
    listener = Listener()
    for precision in ("fp32", "bf16", "fp16"):
        _, result = train_toy(
            tmp_path / precision,
            model=ToyModel(),
            objective=ToyObjective(noise=0.0),
            precision=precision,
            steps=150,
            reporter=listener,
            validation=ToySource(batches=2, seed=5),
            schedule=Schedule(kind="linear", peak=0.02, warmup=5),
        )
        assert result.scores["loss"] < 0.05, precision
        assert result.steady_tokens_per_second is not None
        assert result.steady_tokens_per_second > 0


def test_freezing(tmp_path: Path) -> None:
    before = weights(ToyModel())
    model, _ = train_toy(tmp_path, model=ToyModel(), freeze=("layers.0.*", r"re:output\.b.*"))
    after = weights(model)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"embedding.weight", "output.weight", "layers.1.linear.weight", "layers.1.linear.bias"}


def test_freezing_errors() -> None:
    with pytest.raises(OptionError, match=r"'encoder.*' matches no parameter. Available: embedding.weight, layers.0"):
        freeze(ToyModel(), ["encoder.*"])
    with pytest.raises(OptionError, match="no regular expression"):
        freeze(ToyModel(), ["re:("])
    with pytest.raises(OptionError, match="leaves no parameter"):
        freeze(ToyModel(), ["*"])


def test_warm_start() -> None:
    model, other = ToyModel(seed=1), ToyModel(seed=2)
    state = {name: tensor.detach() for name, tensor in named_state(other).items()}
    bias = state.pop("output.bias")
    state["head.weight"] = bias
    with pytest.raises(ModelFolderError, match=r"expects weights for 'output.bias'"):
        warm_start(model, state)
    report = warm_start(model, state, ["output.*"])
    assert report.missing == ("output.bias",)
    assert report.unused == ("head.weight",)
    assert torch.equal(model.layers[1].linear.weight, other.layers[1].linear.weight)
    state["output.bias"] = torch.zeros(3)
    with pytest.raises(ModelFolderError, match=r"shape \[11\] for 'output.bias', found \[3\]"):
        warm_start(model, state)


class NotANumber(ToyObjective):
    """Gives no number in some updates."""

    def __init__(self, bad: set[int]) -> None:
        super().__init__()
        self.bad, self.calls = bad, 0

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        self.calls += 1
        loss = super().loss(model, prepared)
        return Loss(loss.total * float("nan")) if self.calls in self.bad else Loss(loss.total)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_bad_update_is_left_out(precision: str) -> None:
    model = ToyModel()
    options = TrainingOptions(steps=3, precision=precision, clip=1.0)  # type: ignore[arg-type]
    objective = NotANumber({19})
    updater = Updater(model, objective.loss, options, alone(CPU))
    states = []
    for index in range(20):  # fp16 spends the first few on finding its loss scale
        prepared = objective.prepare(ToySource().batch(0, index), torch.Generator())
        updater.apply(Group([prepared], 0, index + 1, False), 0.01)
        states.append((weights(model), {name: tensor.clone() for name, tensor in updater.tensors().items()}))
    assert same(states[17][0], states[18][0])
    assert same(states[17][1], states[18][1])
    assert not same(states[16][0], states[17][0])
    assert updater.bad_updates.item() >= 1
    updater.apply(Group([prepared], 0, 1, False), 0.01)
    assert updater.bad_streak.item() == 0
    assert not same(states[18][0], weights(model))


def test_bad_updates_in_a_row_end_the_run(tmp_path: Path) -> None:
    listener = Listener()
    with pytest.raises(WorkError, match="update 9: expected finite gradients, found 5 updates in a row"):
        train_toy(tmp_path, objective=NotANumber(set(range(5, 99))), max_bad_updates=5, reporter=listener)
    assert '"loss": null' in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # the tracer's own
def test_compiling_layers_and_loss_is_wired(tmp_path: Path) -> None:
    """With the eager backend, which traces but generates nothing: the same numbers, through the compiler's hands."""
    for how in ("layers", "loss"):
        model, objective = ToyModel(), ToyObjective()
        prepared = objective.prepare(ToySource().batch(0, 0), torch.Generator())
        expected = objective.loss(model, prepared).total
        loss = compiled(model, objective, how, backend="eager")  # type: ignore[arg-type]
        torch.testing.assert_close(loss(model, prepared).total, expected)
        assert [layer._compiled_call_impl is not None for layer in model.layers] == [how == "layers"] * 2
        assert set(model.state_dict()) == set(ToyModel().state_dict())
    with pytest.raises(OptionError, match="compilable layers"):
        compiled(nn.Linear(2, 2), ToyObjective(), "layers")
