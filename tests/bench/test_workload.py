import pytest

from longstride.bench.workload import Workload
from longstride.contract import EOS, InputError, OptionError

from .conftest import detokenize, make_workload


def test_warm_up_is_never_measured_and_spans_all_lengths(workload: Workload) -> None:
    assert not set(workload.warmup) & set(workload.sources)
    assert max(map(len, workload.warmup)) == max(map(len, workload.sources))
    given = [(7, 8, EOS), workload.sources[0]]
    made = Workload.of("x", workload.sources, workload.references, detokenize, warmup=given)
    assert made.warmup[0] == (7, 8, EOS)
    assert workload.sources[0] not in made.warmup


def test_warm_up_is_nearly_what_is_measured() -> None:
    """Who adapts to texts finds the like of them: the words of a sentence, two of them swapped."""
    sources = [[5, 6, 7, 8, EOS], [5, 5, 5, 9, EOS], [4, 4, EOS], [7, EOS]]
    made = Workload.of("x", sources, ["a"] * 4, detokenize)
    assert set(made.warmup) == {(6, 5, 7, 8, EOS), (5, 5, 9, 5, EOS)}


def test_samples_are_fixed_by_seed_and_in_order() -> None:
    workload = make_workload(list(range(1, 60)))
    chosen = workload.sample(20, seed=3)
    assert chosen == workload.sample(20, seed=3) == tuple(sorted(set(chosen)))
    assert len(chosen) == 20
    assert chosen != workload.sample(20, seed=4)
    assert workload.sample(100) == tuple(range(59))
    with pytest.raises(OptionError, match="found 0"):
        workload.sample(0)


def test_the_hash_tells_data_apart(workload: Workload) -> None:
    assert workload.data_hash == make_workload([3, 1, 7, 5, 2, 4, 6, 9, 8, 3]).data_hash
    assert workload.data_hash != make_workload([3, 1, 7, 5, 2, 4, 6, 9, 8]).data_hash


@pytest.mark.parametrize(
    ("sources", "references", "found"),
    [
        ([], [], "found none"),
        ([[5, EOS]], ["a", "b"], "found 1 sources and 2 references"),
        ([[5, EOS], [5, 6]], ["a", "b"], "source sentence 2 to end in EOS"),
        ([[]], ["a"], "source sentence 1 to end in EOS"),
        ([[5, EOS, 6, EOS]], ["a"], "hold no other"),
    ],
)
def test_bad_data_is_refused(sources: list[list[int]], references: list[str], found: str) -> None:
    with pytest.raises(InputError, match=found):
        Workload.of("toy", sources, references, detokenize)
