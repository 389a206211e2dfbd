"""The drafter alone from a table that stays, eagerly and from recordings, held to a session that makes all anew."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Limits, Runner, Session, Source
from longstride.contract.trace import TraceBuilder
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.systems.draft_verify.decoder import Draft, DraftOptions
from tests.decoding.draft_twin import SlowDraft
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model
from tests.nn.running_kernels import where
from tests.runtime.test_cuda_graph import same, taped

EAGER = EagerRunner(precision="fp64")
PLAIN: dict[str, Any] = {"prefix": "causal"}


def decoder(runner: Runner, seed: int, kind: dict[str, Any], k: int | None = None, made: type[Draft] = Draft) -> Draft:
    model = runner.place(tiny_model(seed, sharpness=2.0, encoder_layers=2))
    return made(model, runner.place(tiny_drafter(seed, **kind)), runner, DraftOptions(k))


def all_of(session: Session, source: Source, portion: int) -> tuple[Any, Any]:
    """What becomes of sentences that all fit, admitted in portions: by ticket, every hypothesis and every step."""
    builder, found = TraceBuilder(), {}
    for first in range(0, source.rows, portion):
        session.admit(source.slice(first, min(first + portion, source.rows)))
    while len(found) < source.rows:
        builder.add(session.advance())
        found |= {finished.ticket: finished.hypotheses for finished in session.take_finished()}
    return found, [builder.trace(ticket) for ticket in range(source.rows)]


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    capacity=st.integers(1, 5),
    k=st.integers(1, 4),
    limits=LIMITS,
    kind=KINDS,
)
def test_a_table_that_stays_gives_the_bits_of_one_made_anew(seed, rows, capacity, k, limits, kind):
    source = random_source(rows, 6, seed=seed)
    ours, theirs = (decoder(EAGER, seed, kind, k, made) for made in (Draft, SlowDraft))
    found, expected = (one.decode(source, limits, capacity=capacity, trace=True) for one in (ours, theirs))
    assert found.hypotheses == expected.hypotheses  # scores too, to the last bit
    assert found.traces == expected.traces
    assert (found.calls, found.iterations) == (expected.calls, expected.iterations)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10_000),
    capacity=st.sampled_from([1, 2, 4, 8]),
    k=st.integers(1, 4),
    limits=LIMITS,
    kind=KINDS,
)
def test_a_recording_gives_the_bits_of_eager_steps(seed, capacity, k, limits, kind):
    """Of the same shapes, sentences admitted in the same portions; the second session finds a table that was used."""
    runner, recorder = taped()
    ours, theirs = decoder(runner, seed, kind, k), decoder(EAGER, seed, kind, k, SlowDraft)
    portion = max(1, capacity // 4)
    for number in range(2):
        source = random_source(capacity, 6, seed=seed + number)
        session = ours.start(capacity, limits, 16)
        assert all_of(session, source, capacity) == all_of(theirs.start(capacity, limits, 16), source, portion)
        session.close()
    assert recorder.recorded == 2  # entering, and a pass


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10_000),
    batches=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    capacity=st.integers(1, 5),
    limits=LIMITS,
    kind=KINDS,
)
def test_repeated_recordings_decode_as_eager_steps_do(seed, batches, capacity, limits, kind):
    """Ragged batches one after another through kept tables, with rows that are refilled and portions left over."""
    runner, recorder = taped()
    ours, theirs = decoder(runner, seed, kind), decoder(EAGER, seed, kind, made=SlowDraft)
    for number, rows in enumerate(batches):
        source = random_source(rows, 6, seed=seed + number)
        same(*(one.decode(source, limits, capacity=capacity, trace=True) for one in (ours, theirs)))
    assert recorder.replayed


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), rows=st.integers(2, 5), limits=LIMITS, kind=KINDS)
def test_a_recorded_batch_equals_its_rows_one_by_one(seed, rows, limits, kind):
    runner, _ = taped()
    ours, source = decoder(runner, seed, kind), random_source(rows, 6, seed=seed)
    together = ours.decode(source, limits, trace=True)
    for row in range(rows):
        alone = ours.decode(source.slice(row, row + 1), limits, trace=True)
        assert alone.tokens[0] == together.tokens[row]
        assert alone.traces[0] == together.traces[row]


def test_what_follows_an_end_is_not_committed():
    """Where all is too long a block ends again and again; only the first end counts, and a row that ended stays."""
    runner, _ = taped()
    ours = decoder(runner, 3, PLAIN)
    source = random_source(3, 6, seed=3)
    decoded = ours.decode(source, Limits(max_length=2, min_length=2), trace=True)
    for tokens, trace in zip(decoded.tokens, decoded.traces, strict=True):
        (event,) = trace.events
        assert event.ids == (*tokens, EOS)
        assert (event.draft, event.drafted, event.accepted, len(tokens)) == ((), 0, 0, 2)


def test_a_sentence_at_a_time_is_recorded_once():
    runner, recorder = taped()
    ours = decoder(runner, 1, PLAIN)
    for seed in range(4):
        ours.decode(random_source(1, 14, seed=seed))
    assert recorder.recorded == runner.statistics.graphs == 2  # entering, and a pass
    assert runner.statistics.table_bytes > 0


def test_a_session_closed_in_the_middle_gives_nothing_back():
    runner, _ = taped()
    ours = decoder(runner, 1, PLAIN)
    session = ours.start(1, Limits(), 8)
    session.admit(random_source(1, 6, seed=1))
    session.close()
    assert runner.statistics.table_bytes == 0


# --- kernels of our own ----------------------------------------------------------------------------------------------


@pytest.mark.gpu
@settings(max_examples=10)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 4), capacity=st.integers(1, 3), k=st.integers(1, 4), limits=LIMITS
)
def test_by_two_kernels_it_is_what_tensor_code_makes_of_it(seed, rows, capacity, k, limits):
    runner = EagerRunner(where(), "fp32")
    source = random_source(rows, 6, seed=seed)
    found = []
    for used in (False, True):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(EagerRunner, "fuses", used)
            found.append(decoder(runner, seed, PLAIN, k).decode(source, limits, capacity=capacity, trace=True))
    plain, own = found
    assert own.tokens == plain.tokens
    assert own.traces == plain.traces
    assert own.scores == pytest.approx(plain.scores, abs=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("kind", [PLAIN, {"prefix": "full"}, {"prefix": "causal", "link": 3}])
def test_graphs_on_a_gpu_decode_as_eager_steps_do(kind, precision):
    def fail(message: str) -> None:
        raise AssertionError(message)

    runner = CudaGraphRunner("cuda", precision, tell=fail)
    ours, theirs = decoder(runner, 3, kind), decoder(EagerRunner("cuda", precision), 3, kind, made=SlowDraft)
    for seed in range(3):
        source = random_source(5, 9, seed=seed)
        limits = Limits(max_length=30)
        assert ours.decode(source, limits, capacity=4).tokens == theirs.decode(source, limits, capacity=4).tokens
    assert runner.statistics.graphs
