"""What decoding takes in memory is estimated before it is taken: never too high, and what fits is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longstride import load
from longstride.contract import EOS, Limits, Need, OptionError, Source
from longstride.contract import running as memory
from longstride.contract.running import GIB, available
from longstride.translator import Translator
from tests.family import write_family

CPU = torch.device("cpu")
SIZES = [
    ("greedy", {}),
    ("sample", {}),
    ("sample", {"top_k": 3, "top_p": 0.9}),
    ("draft-verify", {"k": 2, "temperature": 0.7}),
    ("beam", {"width": 2}),
    ("beam", {"width": 7, "n_best": 3}),
    ("blockwise", {"k": 3}),
    ("draft-verify", {"k": 2}),
    ("copy-verify", {"k": 9}),
    ("interleaved", {"width": 1}),
    ("interleaved", {"width": 4}),
    ("lattice", {"candidates": 6}),
    ("lattice", {"candidates": 9, "n_best": 4}),
]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return load(write_family(tmp_path_factory.mktemp("room") / "family"), device="cpu")


def some_source(rows: int) -> Source:
    return Source.of([[5 + (row + place) % 6 for place in range(7)] + [EOS] for row in range(rows)])


class GraphValue(TorchDispatchMode):
    """Adds up what is made while it lasts."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for one in found if isinstance(found, tuple | list) else [found]:
            if isinstance(one, Tensor):
                self.bytes += one.nbytes
        return found


@pytest.mark.parametrize(("name", "options"), SIZES)
@pytest.mark.parametrize("rows", [1, 5])
def test_no_estimate_is_above_what_is_made(family: Translator, name: str, options: dict[str, Any], rows: int) -> None:
    decoder, limits = family.decoder(name, **options)
    source = some_source(rows)
    need = decoder.need(limits, source.longest)
    assert need is not None
    with GraphValue() as made:
        decoder.decode(source, limits)
    assert 0 < need.bytes(rows, need.size) <= made.bytes


@pytest.mark.parametrize(("name", "options"), SIZES)
def test_what_has_no_room_is_refused_before_it_is_made(
    family: Translator, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, limits = family.decoder(name, **options)
    source = some_source(5)
    need = decoder.need(limits, source.longest)
    assert need is not None
    needed = need.bytes(5, need.size)
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available", lambda device: needed - 1)
    monkeypatch.setattr(type(decoder), "start", lambda *given: pytest.fail("a table was made"))
    with pytest.raises(OptionError, match=rf"^{name}: .*5 sentences side by side would take about .* there; .*\.$"):
        decoder.decode(source, limits)
    monkeypatch.undo()
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available", lambda device: needed)
    decoder.decode(source, limits)


@given(asked=st.integers(1, 10**6), rows=st.integers(1, 10**4), there=st.integers(1, 10**12))
def test_what_is_said_to_fit_is_the_most_that_does(asked: int, rows: int, there: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "SMALL", 0)
        patch.setattr(memory, "available", lambda device: there)
        need = Need(lambda sentences, size: sentences * size * 1000, CPU, "width", asked)
        needed = rows * asked * 1000
        if needed <= there:
            need.check("beam", rows)
            return
        with pytest.raises(OptionError) as refused:
            need.check("beam", rows)
    message = str(refused.value)
    assert f"width {asked} for {rows} sentences side by side" in message
    fits = {"width": there // (rows * 1000), "a batch of": there // (asked * 1000)}
    for name, most in fits.items():
        assert (f"{name} {most}" in message.split(";")[1]) == (most > 0)
    if not any(fits.values()):
        assert "not even one sentence would fit" in message


def test_little_is_not_worth_asking_the_machine_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: pytest.fail("the machine was asked"))
    Need(lambda sentences, size: 1000, CPU).check("greedy", 1)


def test_the_machine_has_some_memory() -> None:
    found = available(CPU)
    assert found is None or GIB // 8 < found < 2**50


def test_a_memory_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if available(CPU) is None:
        pytest.skip("this system does not say")
    (tmp_path / "limit").write_text("123456\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(memory, "CGROUP_LIMITS", (str(tmp_path / "none"), str(tmp_path / "limit"), "/nowhere"))
    assert available(CPU) == 123456


def test_a_crowd_of_wide_beams_is_refused_at_once(family: Translator) -> None:
    decoder, limits = family.decoder("beam", width=1000)
    source = Source(torch.full((10**6, 1), EOS), torch.ones(10**6, dtype=torch.int64))
    with pytest.raises(OptionError, match=r"beam: width 1000 for 1000000 sentences .* a batch of \d+ would fit"):
        decoder.decode(source, limits)


@given(length=st.integers(1, 2000), ratio=st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0]), data=st.data())
def test_the_longest_output_is_the_same_for_one_and_for_many(length: int, ratio: float, data: st.DataObject) -> None:
    most = data.draw(st.integers(1, 500))
    least, extra = data.draw(st.integers(0, most)), data.draw(st.integers(0, 50))
    limits = Limits(max_length=most, max_ratio=ratio, max_extra=extra, min_length=least)
    assert limits.longest_output(length) == int(limits.longest_outputs(torch.tensor(length)))
