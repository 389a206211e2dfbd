"""Alignments: FastAlign's own output on the lines of its README, a slow twin, and files in Pharaoh format."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import RESERVED, InputError, OptionError
from longstride.systems.lattice.alignment import Alignment, learn, read_pharaoh, write_pharaoh
from longstride.text.binarized import BinarizedCorpus, binarize
from longstride.text.fast_align import Aligned, AlignerOptions, Words, align
from longstride.text.filtering import LengthFilter
from longstride.text.tokenizer import WordsTokenizer

LINES = """
doch jetzt ist der Held gefallen . ||| but now the hero has fallen .
neue Modelle werden erprobt . ||| new models are being tested .
doch fehlen uns neue Ressourcen . ||| but we lack new resources .
""".strip().split("\n")

Pair = tuple[list[int], list[int]]


def toy() -> list[Pair]:
    numbers: dict[str, int] = {}
    return [
        tuple([numbers.setdefault(word, 5 + len(numbers)) for word in side.split()] for side in line.split(" ||| "))  # type: ignore[misc]
        for line in LINES
    ]


def corpus(pairs: list[Pair]) -> BinarizedCorpus:
    return BinarizedCorpus.from_pairs(pairs)


def words(sentences: list[list[int]]) -> Words:
    lengths = [len(sentence) for sentence in sentences]
    return Words(
        np.array([word for sentence in sentences for word in sentence], np.int64),
        np.cumsum([0, *lengths]).astype(np.int64),
    )


def aligned(pairs: list[Pair], options: AlignerOptions, dtype: torch.dtype = torch.float64) -> Aligned:
    return align(words([source for source, _ in pairs]), words([target for _, target in pairs]), options, dtype=dtype)


def spelt(pairs: list[Pair], links: np.ndarray) -> list[str]:
    rest = iter(links.tolist())
    return [
        " ".join(f"{source}-{place}" for place, source in enumerate([next(rest) for _ in target]) if source >= 0)
        for _, target in pairs
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fast_align_as_its_authors_advise(dtype: torch.dtype) -> None:
    found = aligned(toy(), AlignerOptions(), dtype)
    assert spelt(toy(), found.links) == [
        "0-0 1-1 2-2 3-3 4-4 5-5 6-6",
        "0-0 1-1 2-2 2-3 3-4 4-5",
        "0-0 1-1 2-2 3-3 4-4 5-5",
    ]
    assert found.tension == pytest.approx(3.72335, abs=5e-6)
    assert found.perplexity == pytest.approx(3.44248, abs=5e-6)


def test_fast_align_without_diagonal_null_and_prior() -> None:
    found = aligned(toy(), AlignerOptions(null=0, diagonal=False, prior=0))
    assert spelt(toy(), found.links) == [
        "0-0 1-1 1-2 1-3 1-4 1-5 6-6",
        "0-0 1-1 1-2 1-3 1-4 4-5",
        "0-0 1-1 1-2 3-3 1-4 5-5",
    ]


def test_lines_without_words_change_nothing() -> None:
    """A filter that keeps lines of one token keeps empty ones."""
    empty: list[Pair] = [([], []), ([5], []), ([], [])]
    found, plain = aligned([*toy(), *empty], AlignerOptions()), aligned(toy(), AlignerOptions())
    assert found.links.tolist() == plain.links.tolist()
    assert (found.tension, found.perplexity) == (plain.tension, plain.perplexity)
    unlinked = aligned([*toy(), ([], [5])], AlignerOptions())
    assert unlinked.links.tolist() == [*plain.links.tolist(), -1]
    assert unlinked.tension == pytest.approx(plain.tension, abs=0.5)


def slow_twin(pairs: list[Pair], options: AlignerOptions) -> tuple[list[list[float]], float]:
    """Word by word in dictionaries, with the tension left as it is: P(f, a) of each target word, and the perplexity."""
    t: dict[tuple[int, int], float] = {}
    for iteration in range(options.iterations):
        counts: dict[int, dict[int, float]] = {}
        joints, likelihood = [], 0.0
        for source, target in pairs:
            n, m = len(source), len(target)
            for j, f in enumerate(target, start=1):
                near = [math.exp(-options.tension * abs(i / n - j / m)) for i in range(1, n + 1)]
                places = [options.null] + [(1 - options.null) * one / sum(near) for one in near]
                joint = [place * (t[(e, f)] if t else 1e-9) for place, e in zip(places, [-1, *source], strict=True)]
                likelihood += math.log(sum(joint))
                joints.append(joint)
                for e, one in zip([-1, *source], joint, strict=True):
                    row = counts.setdefault(e, {})
                    row[f] = row.get(f, 0.0) + one / sum(joint)
        if iteration == options.iterations - 1:
            return joints, math.exp(-likelihood / len(joints))
        for e, row in counts.items():
            total = sum(count + options.prior for count in row.values())
            for f, count in row.items():
                psi = torch.digamma(torch.tensor([count + options.prior, total], dtype=torch.float64))
                t[(e, f)] = math.exp(float(psi[0] - psi[1]))
    raise AssertionError


sentences = st.lists(st.integers(5, 9), min_size=1, max_size=5)


@settings(max_examples=30)
@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6), st.sampled_from([0.0, 0.08, 0.3]))
def test_blocks_of_pairs_equal_word_by_word(pairs: list[Pair], null: float) -> None:
    options = AlignerOptions(iterations=3, null=null, fit_tension=False)
    found = aligned(pairs, options)
    joints, perplexity = slow_twin(pairs, options)
    assert found.perplexity == pytest.approx(perplexity, rel=1e-9)
    # Which of two equally likely source words is taken is a matter of rounding.
    assert all(joint[link + 1] >= max(joint) * (1 - 1e-9) for joint, link in zip(joints, found.links, strict=True))


def test_all_tensions_there_may_be_give_numbers() -> None:
    """Words far from the only one that they can come from, and the other way round."""
    many = list(range(5, 205))
    for tension in (0.001, 700):
        found = aligned([([5], many), (many, [5])], AlignerOptions(tension=tension))
        assert math.isfinite(found.tension)
        assert math.isfinite(found.perplexity)


def test_words_are_a_corpus_without_eos() -> None:
    made = corpus([([5, 6], [7]), ([8], [])])
    assert Words.of(made.source).ids.tolist() == [5, 6, 8]
    assert Words.of(made.source).offsets.tolist() == [0, 2, 3]
    assert Words.of(made.target).offsets.tolist() == [0, 1, 1]


def test_learning_on_a_corpus_and_its_memory() -> None:
    found = learn(corpus(toy()))
    assert spelt(toy(), found.links)[1] == "0-0 1-1 2-2 2-3 3-4 4-5"
    assert "fast_align, 5 iterations" in found.made_by
    with pytest.raises(OptionError, match=r"--memory expects at least .* found 1e-09"):
        learn(corpus(toy()), memory=1e-9)


def test_pharaoh_round_trip_with_filtered_lines(tmp_path: Path) -> None:
    whole = corpus([([5, 6], [7, 8, 9]), ([5], [7]), ([5, 6, 7], [8, 9])])
    links = np.array([1, -1, 0, 0, 2, 2], np.int32)
    file = tmp_path / "links.gz"
    write_pharaoh(file, whole, Alignment(links, "by hand"))
    assert read_pharaoh(file, whole).links.tolist() == links.tolist()


def test_pharaoh_lines_of_pairs_left_out_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a b\n\na\n")
    (tmp_path / "t").write_text("b a\nb\nb b\n")
    (tmp_path / "links").write_text("0-1 1-0\n99-99\n0-1\n")
    kept = binarize(
        tmp_path / "s", tmp_path / "t", WordsTokenizer([*RESERVED, "a", "b"]), tmp_path / "c", LengthFilter()
    )
    found = read_pharaoh(tmp_path / "links", kept)
    assert found.links.tolist() == [1, 0, -1, 0]
    write_pharaoh(tmp_path / "again", kept, found)
    assert (tmp_path / "again").read_text() == "1-0 0-1\n\n0-1\n"


def test_of_several_links_the_one_nearest_the_diagonal_stays(tmp_path: Path) -> None:
    file = tmp_path / "links"
    file.write_text("0-1 2-1 1-1 0-0 2-0 2-0\n")
    found = read_pharaoh(file, corpus([([5, 6, 7], [8, 9, 10])]))
    assert found.links.tolist() == [0, 1, -1]
    assert found.doubled == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-0\n", r"links: expected as many lines as the corpus has \(2\), found 1\."),
        ("0-0\n0-0\n\n", r"links: expected as many lines as the corpus has \(2\), found 3\."),
        ("0-0\n1-0\n", r"links, line 2: expected links between 1 source and 2 target words, .* found 1-0\."),
        ("0-0\n0-2\n", r"links, line 2: .* found 0-2\."),
        ("0-0 zero\n0-0\n", r"links, line 1: expected links such as 0-0, found 'zero'\."),
        ("0-0\n-1-0\n", r"links, line 2: expected links such as 0-0, found '-1-0'\."),
    ],
)
def test_bad_alignment_files_name_the_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "links"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        read_pharaoh(file, corpus([([5], [6]), ([7], [8, 9])]))


@pytest.mark.parametrize(
    "wrong", [{"iterations": 0}, {"null": 1.0}, {"prior": -1.0}, {"tension": 0.0}, {"tension": 750.0}]
)
def test_options_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        AlignerOptions(**wrong)  # type: ignore[arg-type]
