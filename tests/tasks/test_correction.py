"""GLEU by hand and against a slow twin; reading of test sets of corrections."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import InputError
from longstride.tasks.bootstrap import paired_bootstrap
from longstride.tasks.correction import Corrections, read_corrections, score_corrections
from longstride.tasks.ngrams import Gleu

LINE = st.lists(st.sampled_from("abcde"), max_size=9).map(" ".join)


def gleu(source: str, output: str, *references: str) -> float:
    return Gleu([source], [[reference] for reference in references]).score([output], [references[0]]).value


def test_the_reference_itself_scores_a_hundred():
    assert gleu("a b c x e", "a b c d e", "a b c d e") == pytest.approx(100.0)


def test_a_correction_left_out_costs_more_than_bleu_would_take():
    """Source and output: a b x d e; reference: a b c d e.

    n = 1: shares a b d e (4), keeps x (1): 3 of 5. n = 2: shares "a b", "d e"; keeps "b x", "x d": 0 of 4.
    """
    metric = Gleu(["a b x d e"], [["a b c d e"]])
    figures = metric.statistics(["a b x d e"])[0]
    assert figures.tolist() == [5, 5, 3, 5, 0, 4, 0, 3, 0, 2]
    assert metric.value(figures) == 0.0


def test_by_hand_with_a_brevity_penalty():
    """Source: a a b c d e f; reference: a b c d e f g; output: a b c d e f, one word short.

    Every n-gram of the output is the reference's: 6/6, 5/5, 4/4, 3/3. What the source has and the reference lacks is
    "a a" and whatever holds it, none of it in the output. GLEU = exp(1 - 7/6).
    """
    assert gleu("a a b c d e f", "a b c d e f", "a b c d e f g") == pytest.approx(100 * math.exp(1 - 7 / 6))


def test_by_hand_with_a_word_that_should_have_gone():
    """Source: the the cat sat on mats; reference: the cat sat on a mat; output: the cat sat on mats.

    n = 1: shares the cat sat on (4), keeps mats (1): 3/5. n = 2: shares "the cat", "cat sat", "sat on" (3), keeps
    "on mats" (1): 2/4. n = 3: shares "the cat sat", "cat sat on" (2), keeps "sat on mats" (1): 1/3. n = 4: shares "the
    cat sat on" (1), keeps "cat sat on mats" (1): 0/2, so all is 0.
    """
    source, output = "the the cat sat on mats", "the cat sat on mats"
    assert gleu(source, output, "the cat sat on a mat") == 0.0
    figures = Gleu([source], [["the cat sat on a mat"]]).statistics([output])[0]
    assert figures.tolist() == [5, 6, 3, 5, 2, 4, 1, 3, 0, 2]


def test_counts_are_clipped_and_sentences_are_summed_before_dividing():
    metric = Gleu(["x", "a b c d"], [["a b c d e", "a b c d"]])
    summed = metric.statistics(["a a a a a", "a b c d"]).sum(axis=0)
    # "a" counts once in the first; n-grams of both sentences are put together.
    assert summed.tolist() == [9, 9, 1 + 4, 9, 0 + 3, 7, 0 + 2, 5, 0 + 1, 3]
    expected = math.exp((math.log(5 / 9) + math.log(3 / 7) + math.log(2 / 5) + math.log(1 / 3)) / 4)
    assert metric.value(summed) == pytest.approx(100 * expected)


def slow_gleu(sources: list[str], outputs: list[str], references: list[list[str]], draws: int) -> float:
    """From the definition, with lists."""

    def grams(line: str, n: int) -> list[tuple[str, ...]]:
        words = line.split()
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    scores = []
    for draw in range(draws if len(references) > 1 else 1):
        rng = random.Random(101 * draw)
        chosen = [references[int(rng.random() * len(references))][i] for i in range(len(sources))]
        ratios = []
        for n in (1, 2, 3, 4):
            above = below = 0
            for source, output, reference in zip(sources, outputs, chosen, strict=True):
                right, mine = grams(reference, n), grams(output, n)
                wrong = [gram for gram in grams(source, n) if gram not in right]
                shared = sum(min(mine.count(gram), right.count(gram)) for gram in set(mine))
                kept = sum(min(mine.count(gram), wrong.count(gram)) for gram in set(mine))
                above += max(0, shared - kept)
                below += len(mine)
            ratios.append(above / below if below else 0.0)
        length = sum(len(output.split()) for output in outputs)
        expected = sum(len(reference.split()) for reference in chosen)
        if not all(ratios) or not length or not expected:
            scores.append(0.0)
        else:
            scores.append(math.prod(ratios) ** 0.25 * min(1.0, math.exp(1 - expected / length)))
    return 100 * sum(scores) / len(scores)


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(LINE, LINE, LINE, LINE, LINE), min_size=1, max_size=4), sets=st.integers(1, 3))
def test_gleu_is_its_slow_twin(rows, sets):
    sources, outputs, *references = (list(column) for column in zip(*rows, strict=True))
    metric = Gleu(sources, references[:sets], draws=20)
    slow = slow_gleu(sources, outputs, references[:sets], 20)
    assert metric.score(outputs, references[0]).value == pytest.approx(slow)


def test_one_reference_needs_no_draws_and_equal_ones_no_luck():
    sources, outputs, right = ["a x c d e"], ["a b c d f"], ["a b c d e"]
    alone = Gleu(sources, [right]).score(outputs, right).value
    assert alone > 0
    assert Gleu(sources, [right, right, right]).score(outputs, right).value == pytest.approx(alone)


def test_the_same_files_always_give_the_same_figure():
    sources, outputs = ["a b c d e"] * 5, ["a b c d f"] * 5
    references = [["a b c d f"] * 5, ["a b c g f"] * 5]
    first, second = (Gleu(sources, references).score(outputs, outputs) for _ in range(2))
    assert first == second
    assert first.signature.startswith("gleu|n:4|references:2|draws:500|tokens:white-space|case:mixed|v")


def test_two_systems_can_be_compared():
    sources, right = ["a x c d e", "b x d e a"] * 10, ["a b c d e", "b c d e a"] * 10
    metric = Gleu(sources, [right, right], draws=7)
    found = paired_bootstrap(metric, right, sources, right, resamples=50)
    assert (found.candidate, found.metric) == (pytest.approx(100.0), "GLEU")
    assert found.low > 0


def test_statistics_are_numbers_per_sentence():
    metric = Gleu(["a", "b"], [["a", "b"], ["a", "c"]], draws=3)
    assert metric.statistics(["a", ""]).shape == (2, 30)
    assert np.isfinite(metric.statistics(["a", ""])).all()


def test_scores_tell_what_doing_nothing_would_give():
    test_set = Corrections(("a x c d e", "a b"), (("a b c d e", "a b"),))
    scores = {score.name: score.value for score in score_corrections(["a b c d e", "a b"], test_set)}
    assert list(scores) == ["GLEU", "GLEU (source)", "changed"]
    assert scores["GLEU"] == pytest.approx(100.0)
    assert scores["GLEU (source)"] < 50
    assert scores["changed"] == 50.0


def test_a_test_set_is_read_line_by_line(tmp_path: Path):
    for name, text in (("src", "a x\nb\n"), ("ref0", "a b\nb\n"), ("ref1", "a c\nb\n"), ("short", "a\n")):
        (tmp_path / name).write_text(text)
    found = read_corrections(tmp_path / "src", [tmp_path / "ref0", tmp_path / "ref1"])
    assert found == Corrections(("a x", "b"), (("a b", "b"), ("a c", "b")))
    with pytest.raises(InputError, match=r"found 2 in .*src and 1 in .*short"):
        read_corrections(tmp_path / "src", [tmp_path / "ref0", tmp_path / "short"])
    with pytest.raises(InputError, match="at least one file of references"):
        read_corrections(tmp_path / "src", [])


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="GLEU expects sources and references"):
        Gleu([], [[]])
    with pytest.raises(InputError, match="in set 2, found 1 sources and 2 references"):
        Gleu(["a"], [["a"], ["a", "b"]])
    with pytest.raises(InputError, match="one output per source, found 1 and 2"):
        Gleu(["a"], [["a"]]).statistics(["a", "b"])
