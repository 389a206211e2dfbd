from hypothesis import given
from hypothesis import strategies as st

from longstride.tasks.score import repetition_rate, word_repetition


def test_definition() -> None:
    assert repetition_rate([["a", "a", "a", "b"]]) == 50.0
    assert repetition_rate([[5, 6, 5, 6]]) == 0.0
    assert repetition_rate([[5], [5]]) == 0.0, "repeats do not cross sentences"
    assert repetition_rate([]) == repetition_rate([[]]) == 0.0


def test_words_are_told_by_white_space_and_carry_a_signature() -> None:
    score = word_repetition(["the the  cat sat", ""])
    assert (score.value, score.signature) == (25.0, "repetition|immediate|words|percent")


@given(st.lists(st.lists(st.integers(5, 8), max_size=12), max_size=6))
def test_equals_counting_one_by_one(sentences: list[list[int]]) -> None:
    repeats = tokens = 0
    for sentence in sentences:
        for place, token in enumerate(sentence):
            tokens += 1
            repeats += place > 0 and sentence[place - 1] == token
    assert repetition_rate(sentences) == (100.0 * repeats / tokens if tokens else 0.0)
