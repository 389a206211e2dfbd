"""What a newcomer gets wrong: one sentence that names it, exit code 2, and nothing written. With the bundled model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

BENCH = ["bench", "-s", "two", "-r", "two", "-o", "records.jsonl", "--device", "cpu"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["translate", "-m", "nowhere"], "nowhere: expected a model folder, found nothing; models are never down"),
        (["translate", "-m", "/no/where"], "/no/where: expected a model folder, found nothing."),
        (["translate", "-m", "."], ".: expected a model folder, but it has no config.json."),
        (["translate", "-i", "nowhere"], "nowhere: expected a text file, found none."),
        (
            ["translate", "--decoder", "blockwise", "--set", "k=99"],
            "k expects 1 to 5, the heads that this model has, found 99.",
        ),
        (["translate", "-m", "bundeld"], "bundeld: expected a model folder, found nothing (did you mean bundled?)."),
        (["translate", "--decoder", "draft_verfy"], "no decoder 'draft_verfy' (did you mean draft-verify?); it has"),
        (["translate", "--set", "max_lenght=9"], "no option 'max_lenght' (did you mean max_length?); its options"),
        (["translate", "--runtime", "cuda"], "no runtime 'cuda' (did you mean cuda-graph?) in this version"),
        (["translate", "--precision", "fp_16"], "or int8, found 'fp_16' (did you mean fp16?)."),
        (["translate", "--decoder", "nonsense"], "has no decoder 'nonsense'; it has greedy, beam, blockwise, "),
        (["translate", "--set", "k"], "--set expects name=value, found 'k'."),
        (["translate", "--precision", "fp8"], "--precision expects auto, fp32, fp16, bf16, fp64 or int8, found 'fp8'."),
        (
            ["evaluate", "-s", "two", "-r", "one"],
            "Expected as many target lines as source lines, found 2 in two and 1 in one.",
        ),
        ([*BENCH, "-r", "one"], "--task translation expects one --reference, found 2."),
        ([*BENCH[:3], "-r", "one", *BENCH[5:]], "found 2 in two and 1 in one."),
        ([*BENCH, "--decoders", "nonsense"], "has no decoder 'nonsense'; it has greedy, beam, blockwise, "),
        ([*BENCH, "--peers", "nonsense"], "--peers expects hf, ctranslate2, hf-compiled or several with commas"),
        (["report", "missing.jsonl"], "missing.jsonl: expected a file of records, found: No such file or directory."),
        (["report", "--check"], "(*.jsonl), found none; name files, or run it in a checkout."),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two").write_text("one\ntwo\n")
    (tmp_path / "one").write_text("one\n")
    ran = run(*arguments)
    assert told in ran.error
    assert ran.err.rstrip("\n").count("\n") == 0, "nothing but the sentence"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
