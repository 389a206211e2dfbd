"""ROUGE against a definition by hand, its signature, and intervals."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import InputError, OptionError
from longstride.tasks import summarization
from longstride.tasks.bootstrap import paired_bootstrap, score_interval

pytest.importorskip("rouge_score")
Rouge = summarization.Rouge

LINE = st.lists(st.sampled_from("abcde"), max_size=8).map(" ".join)


def f1(shared: int, said: int, wanted: int) -> float:
    return 200 * shared / (said + wanted) if shared else 0.0


def slow(kind: str, output: list[str], reference: list[str]) -> float:
    if kind == "ROUGE-L":

        @cache
        def common(i: int, j: int) -> int:
            if i == len(output) or j == len(reference):
                return 0
            if output[i] == reference[j]:
                return 1 + common(i + 1, j + 1)
            return max(common(i + 1, j), common(i, j + 1))

        return f1(common(0, 0), len(output), len(reference))
    n = int(kind[-1])
    mine, right = (
        Counter(tuple(words[at : at + n]) for at in range(len(words) + 1 - n)) for words in (output, reference)
    )
    return f1((mine & right).total(), mine.total(), right.total())


@given(pairs=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=4), kind=st.sampled_from(list(summarization.KINDS)))
def test_a_corpus_has_the_mean_of_its_sentences(pairs: list[tuple[str, str]], kind: str) -> None:
    outputs, references = zip(*pairs, strict=True)
    expected = [slow(kind, output.split(), reference.split()) for output, reference in pairs]
    assert Rouge(kind, stem=False).score(outputs, references).value == pytest.approx(np.mean(expected))


def test_endings_count_only_without_the_stemmer() -> None:
    output, reference = ["translating documents"], ["translation document"]
    assert Rouge("ROUGE-1").score(output, reference).value == pytest.approx(100.0)
    assert Rouge("ROUGE-1", stem=False).score(output, reference).value == 0.0


def test_the_signature_says_what_could_change_the_value() -> None:
    assert Rouge().signature.startswith("rougeL|f1:mean|tok:rouge-score|case:lc|stem:porter|v:0.")
    assert "|stem:no|" in Rouge("ROUGE-2", stem=False).signature


def test_scores_lead_with_rouge_l_and_tell_how_long_outputs_are() -> None:
    scores = summarization.score_summaries(["fast decoding", ""], ["Fast decoding!", "one two"])
    assert [score.name for score in scores] == ["ROUGE-L", "ROUGE-1", "ROUGE-2", "length"]
    assert [score.value for score in scores] == pytest.approx([50.0, 50.0, 50.0, 50.0])


def test_intervals_hold_the_score_and_comparisons_work() -> None:
    references = [f"a b c {word}" for word in "defghijk"]
    outputs = [f"a c {word}" for word in "defxxxjk"]
    found = score_interval(Rouge(), references, outputs, resamples=200)
    assert found.low < found.value < found.high
    assert found == score_interval(Rouge(), references, outputs, resamples=200)
    against = paired_bootstrap(Rouge(), references, ["a"] * 8, outputs, resamples=200)
    assert against.difference == pytest.approx(found.value - against.baseline)
    assert against.difference > 0


def test_what_cannot_be_scored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="one reference per output"):
        Rouge().score(["a"], [])
    with pytest.raises(OptionError, match="ROUGE expects one of ROUGE-1, ROUGE-2, ROUGE-L, found ROUGE-3"):
        Rouge("ROUGE-3")

    def missing(name: str) -> None:
        raise ImportError("gone", name="rouge_score")

    monkeypatch.setattr(summarization.importlib, "import_module", missing)
    with pytest.raises(OptionError, match=r"found no rouge_score: pip install 'longstride\[summarization\]'"):
        Rouge()
