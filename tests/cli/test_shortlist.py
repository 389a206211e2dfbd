"""`longstride shortlist`: counted from pairs into a folder that has a drafter; what it is for stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from longstride.contract.bundled import BUNDLED
from longstride.model_folder import ModelFolder
from longstride.translator import load
from tests.cli.conftest import Run
from tests.decoding.test_draft_verify import write_drafted
from tests.folders import words


@pytest.fixture
def text(tmp_path: Path) -> list[object]:
    """Options that name pairs of lines."""
    for name, lines in (("src", ["a b", "b", "", "a"]), ("tgt", ["c d", "d", "", "c"])):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines * 4))
    return ["-s", tmp_path / "src", "-t", tmp_path / "tgt", "--device", "cpu"]


def test_a_folder_gets_a_shortlist(run: Run, tmp_path: Path, text: list[object]) -> None:
    folder = write_drafted(tmp_path / "model")
    before, greedy = ModelFolder(folder), load(folder, device="cpu").translate(["a b c"], "greedy")[0].tokens
    ran = run("shortlist", "-m", folder, *text, "--each", 2)
    assert ran.code == 0, ran
    assert "12 pairs" in ran.err
    after = ModelFolder(folder)
    assert {name: part for name, part in after.parts.items() if name != "shortlist"} == before.parts
    assert after.decoders["draft-verify"].parts == {**before.decoders["draft-verify"].parts, "shortlist": "shortlist"}
    assert after.decoders["draft"] == before.decoders["draft"]
    assert after.config.provenance["shortlist"]["pairs"] == 12
    translator = load(folder, device="cpu")
    a, b, c, d = words().encode("a b c d")
    assert translator.part("shortlist").words[[a, b]].tolist() == [[c, a], [d, b]]
    assert translator.translate(["a b c"], "draft-verify", tree=4)[0].tokens == greedy
    assert run("shortlist", "-m", folder, *text).code == 0, "once more"
    assert len(list(folder.glob("shortlist-*"))) == 1


def test_what_has_no_use_for_one_is_refused(run: Run, model: Path, text: list[object]) -> None:
    ran = run("shortlist", "-m", model, *text)
    assert ran.code == 2
    assert "expected a model with a drafter" in ran.err
    ran = run("shortlist", "-m", BUNDLED, *text)
    assert ran.code == 2
    assert "a model folder of your own to put a shortlist into" in ran.err
