"""Lines in, as many lines out, and whatever can be wrong with them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

import longstride
from longstride.cli.main import main
from longstride.contract import Event, Trace
from longstride.text.tokenizer import load_tokenizer, train_sentencepiece
from tests.cli.conftest import Run
from tests.folders import LONGEST, write_folder

LINES = ["a b c", "", "t s r q p", "   ", "a", "b b b b b b b", "\t"]


def joined(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


@pytest.mark.parametrize("decoder", ["greedy", "beam"])
def test_empty_lines_stay_and_every_line_is_what_it_is_alone(run: Run, model: Path, decoder: str) -> None:
    ran = run("translate", "-m", model, "--decoder", decoder, "--batch", "2", stdin=joined(LINES))
    assert ran.code == 0
    found = ran.out.split("\n")[:-1]
    assert len(found) == len(LINES)
    translator = longstride.load(model, device="cpu")
    assert found == [translator.translate(line, decoder) for line in LINES]
    assert all(text == "" for text, line in zip(found, LINES, strict=True) if not line.strip())
    assert any(found)


def test_a_line_is_drawn_the_same_whatever_is_decoded_beside_it_or_drafted(
    run: Run, model: Path, tmp_path: Path
) -> None:
    lines = joined([*LINES, "a b c", "a b c", "a b c"] * 8)  # more than a portion of batch 1

    def sampled(decoder: str, *others: object, **options: object) -> str:
        options["max_length"] = 8
        settings = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
        ran = run("translate", "-m", model, "--decoder", decoder, *settings, *others, stdin=lines)
        assert ran.code == 0, ran.err
        return ran.out

    plain = sampled("sample", temperature=1.5, top_p=0.9, seed=4)
    assert sampled("sample", "--batch", "1", temperature=1.5, top_p=0.9, seed=4) == plain
    assert sampled("copy-verify", "--batch", "7", temperature=1.5, top_p=0.9, seed=4) == plain
    (tmp_path / "in").write_bytes(lines)
    sampled("sample", "-i", tmp_path / "in", "-o", tmp_path / "out", "--resume", temperature=1.5, top_p=0.9, seed=4)
    assert (tmp_path / "out").read_text() == plain
    assert sampled("sample", temperature=1.5, top_p=0.9, seed=5) != plain
    assert len(set(plain.split("\n")[-4:-1])) > 1  # the same line, drawn anew at each place


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("temperature=-1", "temperature expects a number from 0 to 1000, found -1"),
        ("top_p=0", "top_p expects a number above 0"),
        ("seed=-1", "seed expects a whole number from 0"),
        ("temperature=0", "seed expects a temperature above 0 beside it, found 3 and temperature=0."),
    ],
)
def test_bad_options_of_sampling_are_refused_by_name(run: Run, model: Path, setting: str, told: str) -> None:
    ran = run("translate", "-m", model, "--decoder", "sample", "--set", "seed=3", "--set", setting, stdin=b"a\n")
    assert ran.code == 2
    assert told in ran.error


def test_a_last_line_without_an_end_is_a_line(run: Run, model: Path) -> None:
    assert run("translate", "-m", model, stdin=b"a\nb").out == run("translate", "-m", model, stdin=b"a\nb\n").out


def test_no_lines_give_no_lines(run: Run, model: Path) -> None:
    ran = run("translate", "-m", model, stdin=b"")
    assert (ran.code, ran.out) == (0, "")


def test_files_and_pipes_agree(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(joined(LINES))
    piped = run("translate", "-m", model, stdin=joined(LINES))
    filed = run("translate", "-m", model, "-i", tmp_path / "in", "-o", tmp_path / "out")
    assert (filed.code, filed.out) == (0, "")
    assert (tmp_path / "out").read_text() == piped.out


def test_the_fastest_runtime_is_taken_and_said_once(run: Run, model: Path) -> None:
    plain, named = (
        run("translate", "-m", model, stdin=joined(LINES)),
        run("translate", "-m", model, "--runtime", "eager", stdin=joined(LINES)),
    )
    assert plain.code == 0
    assert plain.out == named.out
    assert plain.err.count("Carried out by ") == 1
    assert re.search(r"Carried out by .*, \d+ sentences at a time\.$", plain.err, re.MULTILINE)
    assert named.err == ""


def test_lines_are_split_into_sentences_if_so_asked(run: Run, model: Path) -> None:
    split = run("translate", "-m", model, "--sentences", stdin=b"A B!  C D! \n\nE\n").out.splitlines()
    first, second, third = run("translate", "-m", model, stdin=b"A B!\nC D!\nE\n").out.splitlines()
    assert split == [f"{first}  {second} ", "", third]
    whole = run("translate", "-m", model, "--whole", stdin=b"A B!  C D! \n").out
    assert whole == run("translate", "-m", model, stdin=b"A B!  C D! \n").out


def test_too_long_lines_are_cut_with_a_warning_that_counts_lines(run: Run, model: Path) -> None:
    long = " ".join("abcdefghij" * 3)
    lines = ["a b"] * 70 + [long] + ["c"]
    short = ["--set", "max_length=3", "--runtime", "eager"]
    ran = run("translate", "-m", model, "--batch", "1", *short, stdin=joined(lines))  # 70 is beyond the first portion
    assert ran.code == 0
    assert ran.err == f"warning: line 71 has 30 tokens and was cut at the model's limit of {LONGEST - 1}.\n"
    assert len(ran.out.split("\n")) == len(lines) + 1
    cut = " ".join(long.split()[: LONGEST - 1])
    assert ran.out.split("\n")[70] == run("translate", "-m", model, *short, stdin=joined([cut])).out.rstrip("\n")


@pytest.mark.parametrize("from_file", [True, False])
def test_invalid_utf8_names_its_place_and_leaves_nothing(
    run: Run, model: Path, tmp_path: Path, from_file: bool
) -> None:
    bad = b"a b\nc d\n\xff\xfe\n"
    (tmp_path / "in").write_bytes(bad)
    source = ["-i", tmp_path / "in"] if from_file else []
    ran = run("translate", "-m", model, *source, "-o", tmp_path / "out", "--trace", tmp_path / "trace", stdin=bad)
    name = str(tmp_path / "in") if from_file else "standard input"
    assert ran.error == f"error: {name}, line 3: expected UTF-8, found byte 0xff at byte 1."
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_json_tells_source_text_score_and_ids(run: Run, model: Path) -> None:
    ran = run("translate", "-m", model, "--json", stdin=joined(["a b", ""]))
    first, second = map(json.loads, ran.out.splitlines())
    assert list(first) == ["source", "text", "score", "tokens"]
    tokenizer = load_tokenizer(model / "tokenizer.model")
    assert first["source"] == "a b"
    assert first["text"] == tokenizer.decode(first["tokens"])
    assert first["score"] < 0
    assert (second["text"], second["score"], second["tokens"]) == ("", None, [])


@pytest.mark.parametrize("decoder", ["greedy", "beam"])
def test_a_trace_replays_to_the_text(run: Run, model: Path, tmp_path: Path, decoder: str) -> None:
    ran = run("translate", "-m", model, "--decoder", decoder, "--trace", tmp_path / "trace", stdin=joined(LINES))
    tokenizer = load_tokenizer(model / "tokenizer.model")
    written = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    assert [line["line"] for line in written] == list(range(1, len(LINES) + 1))
    assert [line["source"] for line in written] == LINES
    for line, text in zip(written, ran.out.split("\n"), strict=False):
        assert line["text"] == text
        if "trace" in line:
            steps = line["trace"]["steps"]
            events = [Event(tuple(s["positions"]), tuple(s["ids"]), s["drafted"], s["accepted"], True) for s in steps]
            assert tokenizer.decode(Trace(tuple(events)).replay()) == text
            assert all(s["pieces"] == tokenizer.pieces(s["ids"]) for s in steps)
    assert ["trace" in line for line in written] == [bool(line.strip()) for line in LINES]


def test_who_types_is_told_how(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    person, terminal = os.openpty()
    os.write(person, b"a b c\n\x04")
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["translate", "-m", str(model), "--device", "cpu"]) == 0
    os.close(person)
    said = capsys.readouterr()
    assert said.err.startswith("Type a line, Enter translates it; Ctrl-D ends.\n")
    assert said.out == longstride.load(model, device="cpu").translate("a b c") + "\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--decoder", "beem"], ["has no decoder 'beem'", "greedy, beam"]),
        (["--set", "width=3"], ["decoder greedy has no option 'width'", "max_length"]),
        (["--decoder", "beam", "--set", "wdith=3"], ["no option 'wdith'", "width", "n_best"]),
        (["--decoder", "beam", "--set", "width=many"], ["width expects a whole number from 1 to 1000", "'many'"]),
        (["--decoder", "beam", "--set", "width=0"], ["width expects a whole number from 1 to 1000, found 0"]),
        (["--decoder", "beam", "--set", "length_penalty=big"], ["gnmt|average|none", "'big'"]),
        (["--set", "max_length=0"], ["max_length expects a whole number from 1 to 1000000, found 0"]),
        (["--set", "banned=3"], ["end-of-sentence id 3"]),
        (["--set", "width"], ["--set expects name=value, found 'width'"]),
        (["--set", "name=x"], ["no option 'name'"]),
        (["--set", "self=x"], ["no option 'self'"]),
        (["--set", "text=x"], ["no option 'text'"]),
        (["--set", "batch=x"], ["no option 'batch'"]),
        (["--precision", "fp8"], ["--precision expects auto, fp32, fp16, bf16, fp64 or int8, found 'fp8'"]),
        (
            ["--runtime", "eager", "--precision", "int8"],
            ["precision int8 expects the runtime native or onnx, found eager"],
        ),
        (["--runtime", "onnx", "--precision", "fp16"], ["expects fp32 or int8 with the runtime onnx", "fp16"]),
        (["--runtime", "warp"], ["no runtime 'warp'", "eager"]),
        (["--device", "abacus"], ["device expects auto, cpu or cuda", "'abacus'"]),
        (["--device", "meta"], ["device expects auto, cpu or cuda", "'meta'"]),
        (["--device", "cuda:99"], ["cuda:99", "CUDA device"]),
        (["-i", "nowhere.txt"], ["nowhere.txt: expected a text file, found none"]),
        (["-o", "/dev/null/out.txt"], ["/dev/null/out.txt: expected a folder to write in, found a file at /dev/null"]),
    ],
)
def test_misuse_is_told_in_one_sentence(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    error = run("translate", "-m", model, *arguments, stdin=b"a\n").error
    assert [part for part in told if part not in error] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--batch", "0"], ["--bacth", "3"], ["extra"]])
def test_what_the_command_line_itself_refuses_is_misuse_too(run: Run, model: Path, arguments: list[str]) -> None:
    ran = run("translate", "-m", model, *arguments)
    assert ran.code == 2
    assert arguments[0] in ran.err


def test_debug_shows_where_it_went_wrong(run: Run, model: Path) -> None:
    for arguments in (["--debug", "translate"], ["translate", "--debug"]):
        ran = run(*arguments, "-m", model, "--decoder", "beem")
        assert ran.code == 2
        assert "Traceback" in ran.err
        assert "has no decoder 'beem'" in ran.err


def test_an_output_that_spells_a_line_break_is_one_line(run: Run, tmp_path: Path) -> None:
    lines = ["some words to learn pieces from", "and other words, not many"] * 20
    tokenizer = train_sentencepiece(lines, 300, tmp_path / "tokenizer")
    newline = next(id for id in range(tokenizer.size) if tokenizer.decode([id]) == "\n")
    folder = write_folder(tmp_path / "bytes", tokenizer=tokenizer)
    banned = ",".join(str(id) for id in range(tokenizer.size) if id not in (3, newline))
    ran = run("translate", "-m", folder, "--set", f"banned={banned}", "--set", "min_length=3", stdin=b"some\nwords\n")
    assert ran.code == 0
    assert ran.out.count("\n") == 2
    assert all(line.strip(" ") == "" for line in ran.out.split("\n"))


def test_a_run_folder_stands_for_the_model_in_it(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(model)
    assert run("translate", "-m", tmp_path / "run", stdin=b"a b\n") == run("translate", "-m", model, stdin=b"a b\n")


def test_decoders_tells_every_option_of_one_with_its_default(run: Run, model: Path) -> None:
    ran = run("decoders", "beam", "-m", model)
    assert ran.code == 0
    for name in ("beam: ", "width ", "length_penalty ", "n_best ", "max_length ", "banned "):
        assert name in ran.out
