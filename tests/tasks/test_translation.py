import pytest
import sacrebleu

from longstride.contract import InputError
from longstride.tasks.translation import Bleu, Chrf, score_translations

OUTPUTS = ["The cat sat on the mat.", "Hello, big world!", "", "One two three four five six"]
REFERENCES = ["The cat sat on a mat.", "Hello, world!", "Nothing was said.", "One two three four six five"]


def test_scores_are_sacrebleus_own() -> None:
    bleu, chrf = score_translations(OUTPUTS, REFERENCES)
    assert bleu.value == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score, abs=1e-9)
    assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score, abs=1e-9)


def test_signatures_say_what_was_done() -> None:
    bleu, chrf = score_translations(OUTPUTS, REFERENCES)
    assert bleu.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert chrf.signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert Bleu().signature == bleu.signature
    assert Chrf().signature == chrf.signature


@pytest.mark.parametrize("references", [["a b c", "d e"], ["yes!"], ["a", ""]])
def test_references_without_a_4_gram_are_scored_as_far_as_they_go(references: list[str]) -> None:
    bleu = score_translations(references, references)[0]
    assert bleu.value == pytest.approx(100.0)
    assert "|eff:yes|" in bleu.signature
    assert score_translations(["z"] * len(references), references)[0].value < 50


def test_one_reference_with_a_4_gram_leaves_bleu_as_it_is() -> None:
    assert "|eff:no|" in score_translations(["a b", "a"], ["a b", "a b, c"])[0].signature


def test_perfect_output_scores_a_hundred() -> None:
    assert [score.value for score in score_translations(REFERENCES, REFERENCES)] == pytest.approx([100.0, 100.0])


@pytest.mark.parametrize(("outputs", "references"), [(["a"], ["a", "b"]), ([], [])])
def test_counts_must_match(outputs: list[str], references: list[str]) -> None:
    with pytest.raises(InputError, match=r"^Expected .* found .*\.$"):
        score_translations(outputs, references)


def test_a_hundred_tokenized_periods_raise_no_warning() -> None:
    score_translations(["a b c d ."] * 120, ["a b c d."] * 120)
