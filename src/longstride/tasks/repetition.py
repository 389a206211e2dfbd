"""How often an output says a word twice in a row: the usual sign of a model that fills places independently.

Definition. A token is a repeat if it equals the token right before it in the same output. The repetition rate is the
number of repeats over the number of tokens, over the whole corpus, in percent; empty outputs add nothing, and a corpus
without tokens has rate 0. "a a a b" has two repeats among four tokens: 50 %. Correct text can repeat too ("that that"),
so a reference's own rate is the floor to compare with.

The paper on generalized aggressive decoding prints this ratio (its Table 9: 0.18 % for greedy decoding) without
defining it; this is the definition usual in work on non-autoregressive translation. Two kinds of token: words between
white space of detokenized text, comparable across vocabularies, and a model's own ids, as in that work.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from longstride.tasks.score import Score


def repetition_rate(sentences: Sequence[Sequence[int]] | Sequence[Sequence[str]]) -> float:
    """Immediate repeats among all tokens of the corpus, in percent."""
    tokens = sum(len(sentence) for sentence in sentences)
    repeats = sum(before == after for sentence in sentences for before, after in itertools.pairwise(sentence))
    return 100.0 * repeats / tokens if tokens else 0.0


def word_repetition(texts: Sequence[str]) -> Score:
    """The rate over words between white space of detokenized text."""
    return Score("repetition", repetition_rate([text.split() for text in texts]), "repetition|immediate|words|percent")


def id_repetition(outputs: Sequence[Sequence[int]]) -> Score:
    """The rate over the ids of outputs, given without EOS."""
    return Score("repetition (ids)", repetition_rate(outputs), "repetition|immediate|ids|percent")
