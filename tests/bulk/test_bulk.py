"""Shards put together are what one translation of all gives, however often a run stops and whatever fails."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longstride
from longstride.bulk.job import DEATHS, RECORD, Job, ShardResult, Work
from longstride.bulk.records import JsonLines, Shard, TextLines, records_of
from longstride.bulk.running import here, run
from longstride.cli.main import main
from longstride.contract import InputError, OptionError, WorkError
from longstride.text.corpus import Portion, read_lines
from longstride.translator import Translation, Translator
from tests.cli.test_resume import killed
from tests.folders import write_folder

LINES = ["a b c", "", "d c", "b", "  a a", "c\rd", "d d d d", "b a"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("bulk") / "tiny")


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return longstride.load(folder, device="cpu", precision="fp64")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_bytes("".join(f"{line}\n" for line in LINES).encode())
    return path


def work(translator: Translator) -> Work:
    return Work(lambda: translator, None, {})


def nothing(told: ShardResult) -> None:
    pass


lines = st.lists(
    st.text(st.sampled_from("abcd \r\ufeff\u2028é") | st.characters(codec="utf-8", exclude_characters="\n"))
)


@given(lines, st.integers(1, 5), st.booleans())
def test_shards_of_text_are_its_lines(texts: list[str], size: int, ended: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "in.txt"
        content = "\n".join(texts) + ("\n" if ended and texts else "")
        path.write_bytes(content.encode())
        shards, _ = TextLines().shards(path, size)
        found = [line for shard in shards for line in TextLines().read(path, shard)[0]]
        assert found == list(read_lines(path))
        assert [shard.records for shard in shards[:-1]] == [size] * len(shards[:-1])


@given(lines, st.integers(1, 9), st.integers(1, 40), st.integers(1, 5))
def test_shards_end_when_there_is_work_enough(texts: list[str], size: int, characters: int, least: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "in.txt"
        path.write_bytes("".join(f"{text}\n" for text in texts).encode())
        shards, _ = TextLines().shards(path, size, Portion(characters, least))
        parts = [TextLines().read(path, shard)[0] for shard in shards]
        assert [line for part in parts for line in part] == list(read_lines(path))
        for place_, part in enumerate(parts):
            assert len(part) <= size
            if place_ < len(parts) - 1:
                enough = len(part) >= least and sum(map(len, part)) >= characters
                assert enough or len(part) == size
                assert sum(map(len, part[:-1])) < characters or len(part) <= least


@settings(max_examples=6)
@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers(1, 5), st.data())
def test_a_run_that_stops_and_goes_on_is_one_run(
    translator: Translator, texts: list[str], size: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as place:
        path, output = Path(place) / "in.txt", Path(place) / "out.txt"
        path.write_bytes("".join(f"{text}\n" for text in texts).encode())

        def some(job: Job, todo: Work, shards: Sequence[Shard]) -> Iterator[ShardResult]:
            """Stops somewhere, as if all workers had been lost; in any order."""
            order = data.draw(st.permutations(shards))
            return here(job, todo, order[: data.draw(st.integers(0, len(shards)))])

        job = Job.of(path, output, TextLines(), size)
        with job.begun({"model": 1}):
            for _ in range(3):
                with suppress(WorkError):
                    run(job, work(translator), some, 1, nothing)
            assert not output.exists()
            run(job, work(translator), here, 1, nothing)
            job.finish()
        assert output.read_text().splitlines() == [one.text for one in translator.translate(texts)]
        assert not job.folder.exists()


@settings(max_examples=6)
@given(st.lists(st.sampled_from(["a b\nc d", *LINES]), min_size=2, max_size=8), st.integers(1, 3))
def test_what_is_drawn_does_not_hang_on_the_shards(translator: Translator, texts: list[str], size: int) -> None:
    """Also of records that are several lines, each of which is drawn by itself."""
    with tempfile.TemporaryDirectory() as place:
        path, output = Path(place) / "in.jsonl", Path(place) / "out.jsonl"
        path.write_bytes("".join(json.dumps({"text": text}) + "\n" for text in texts).encode())
        job = Job.of(path, output, JsonLines("text", "de"), size)
        with job.begun({}):
            run(job, Work(lambda: translator, "sample", {"temperature": 2.0}), here, 1, nothing)
            job.finish()
        found = [json.loads(line)["de"] for line in output.read_text().splitlines()]
    assert found == [one.text for one in translator.translate(texts, "sample", temperature=2.0)]


def test_shards_that_fail_are_tried_again(translator: Translator, source: Path) -> None:
    job, times = Job.of(source, source.with_name("out"), TextLines(), 2), [0, 0, 0, 0]

    def failing(job: Job, todo: Work, shards: Sequence[Shard]) -> Iterator[ShardResult]:
        for shard in shards:
            times[shard.number] += 1
            if times[shard.number] <= shard.number:
                yield ShardResult(shard.number, error="no luck.", again=True)
            else:
                yield from here(job, todo, [shard])

    with job.begun({}):
        with pytest.raises(WorkError, match=r"1 of 4 shards .* shard 3 because: no luck; the same command"):
            run(job, work(translator), failing, 3, nothing)
        run(job, work(translator), failing, 1, nothing)
        job.finish()
    assert times == [1, 2, 3, 4]
    assert len(list(read_lines(source.with_name("out")))) == len(LINES)


def test_what_kills_whoever_begins_it_is_given_up(translator: Translator, source: Path) -> None:
    job = Job.of(source, source.with_name("out"), TextLines(), 100)
    with job.begun({}):
        died = [job.counted(job.shards[0]) for _ in range(DEATHS)]
        for number, mark in enumerate(died):
            mark.__enter__()  # and is never left
            assert job.file(job.shards[0]).with_suffix(".begun").read_text().count("\n") == number + 1
        with pytest.raises(WorkError, match="died, 3 times in a row"):
            run(job, work(translator), here, 1, nothing)
        run(job, work(translator), here, 1, nothing)  # begun anew by a person


def test_paths_that_go_up_from_a_linked_folder(source: Path) -> None:
    (source.parent / "elsewhere" / "inner").mkdir(parents=True)
    (source.parent / "link").symlink_to(source.parent / "elsewhere" / "inner")
    (source.parent / "elsewhere" / "in").write_text("a\n")
    (source.parent / "in").write_text("b\nc\n")
    up = source.parent / "link" / ".."
    job = Job.of(up / "in", up / "out", TextLines(), 2)
    assert sum(shard.records for shard in job.shards) == 1
    with job.begun({}):
        assert (source.parent / "elsewhere" / "out.shards").is_dir()


def test_an_input_that_changes_is_seen(translator: Translator, source: Path) -> None:
    job = Job.of(source, source.with_name("out"), TextLines(), 2)
    with job.begun({}):
        source.write_text("a\n")
        with pytest.raises(WorkError, match="found it changed"):
            run(job, work(translator), here, 5, nothing)


def test_a_damaged_shard_is_made_anew(translator: Translator, source: Path) -> None:
    job = Job.of(source, source.with_name("out"), TextLines(), 3)
    with job.begun({}):
        run(job, work(translator), here, 1, nothing)
        job.file(job.shards[1]).write_text("one line\n")
        assert job.left() == [job.shards[1]]
        with pytest.raises(WorkError, match="expected 3 records"):
            job.finish()


@pytest.mark.parametrize(("name", "changed"), [("model", {"made_by": {"model": 2}}), ("input", {}), ("--shard", {})])
def test_another_job_s_shards_are_refused(source: Path, name: str, changed: dict[str, dict[str, int]]) -> None:
    with Job.of(source, source.with_name("out"), TextLines(), 3).begun({"model": 1}):
        pass
    if name == "input":
        source.write_text(source.read_text().replace("a", "b"))
    job = Job.of(source, source.with_name("out"), TextLines(), 2 if name == "--shard" else 3)
    with (
        pytest.raises(OptionError, match=f"the same {name} as before"),
        job.begun(changed.get("made_by", {"model": 1})),
    ):
        pass


def test_shards_without_a_record_are_nobody_s(source: Path) -> None:
    """A run that was killed while it removed its folder leaves some; the next one may have other options."""
    job = Job.of(source, source.with_name("out.txt"), TextLines(), 4)
    with job.begun({}):
        for shard in job.shards:
            job.records.write(job.file(shard), ["old"] * shard.records, None)
        assert not job.left()
    (job.folder / RECORD).unlink()
    with job.begun({"decoder": "another"}):
        assert job.left() == job.shards


def test_only_one_process_writes(source: Path) -> None:
    job = Job.of(source, source.with_name("out"), TextLines(), 3)
    with job.begun({}), pytest.raises(WorkError, match="found another process"), job.begun({}):
        pass


def test_json_lines_keep_what_they_say(translator: Translator, tmp_path: Path) -> None:
    records = ['{"id": 1e2, "text": "a b\\nc"}', '{"text":"","big":12345678901234567890 }', '{"text": null}']
    records.append('  {"text": "\\u0061"}\r')
    path, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_bytes("\n".join(records).encode())
    job = Job.of(path, output, JsonLines("text", "de"), 2)
    with job.begun({}):
        run(job, work(translator), here, 1, nothing)
        job.finish()
    found = output.read_text().splitlines()
    assert found[0].startswith('{"id": 1e2, "text": "a b\\nc", "de": ')
    assert found[1].endswith('"big":12345678901234567890, "de": ""}')
    assert json.loads(found[2]) == {"text": None, "de": None}
    texts = [json.loads(record)["text"] or "" for record in records]
    said = [one.text for one in translator.translate(texts)]
    assert [json.loads(line)["de"] or "" for line in found] == said


@pytest.mark.parametrize(
    ("line", "words"),
    [("", "JSON object"), ("[1]", "a text in 'text'"), ('{"text": 1}', "a text in 'text'"), ("{", "JSON object"),
     ("{}", "a text in 'text'"),
     ('{"text": "a", "de": 1}', "no 'de' yet"), ("[" * 5000, "JSON object")],
)  # fmt: skip
def test_lines_that_are_no_records(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n' + line + "\n")
    with pytest.raises(InputError, match=f"line 2: expected .*{words}"):
        JsonLines("text", "de").shards(path, 10)


def test_parquet_keeps_its_columns(translator: Translator, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow comes with longstride[cluster]")
    from pyarrow import parquet

    path, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    table = pyarrow.table({"id": list(range(9)), "text": [*LINES, None]})
    parquet.write_table(table, path, row_group_size=2)
    records = records_of(path, output, "auto", "text", "de")
    assert [shard.records for shard in records.shards(path, 4, Portion(1, 3))[0]] == [3, 3, 3]
    job = Job.of(path, output, records, 4)
    with job.begun({}):
        run(job, work(translator), here, 1, nothing)
        job.finish()
    found = parquet.read_table(output)
    assert found.select(["id", "text"]).equals(table)
    assert found.column("de").to_pylist() == [*(one.text for one in translator.translate(LINES)), None]
    for field, into, words in (
        ("other", "de", "column 'other'"),
        ("id", "de", "found int64"),
        ("text", "id", "no column"),
    ):
        with pytest.raises(InputError, match=words):
            records_of(path, output, "parquet", field, into).shards(path, 4)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="expected a Parquet file"):
        records.shards(path, 4)
    parquet.write_table(table.slice(0, 0), path)
    empty = Job.of(path, output, records, 4)
    with empty.begun({}):
        run(empty, work(translator), here, 1, nothing)
        empty.finish()
    assert parquet.read_table(output).column_names == ["id", "text", "de"]


def test_the_command(folder: Path, translator: Translator, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = source.with_name("out.txt.gz")
    command = ["bulk", "-m", str(folder), str(source), str(output), "--device", "cpu", "--precision", "fp64"]
    assert main([*command, "--shard", "3"]) == 0
    assert list(read_lines(output)) == [one.text for one in translator.translate(LINES)]
    assert "translating: 8 of 8" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_done_and_says_so(
    folder: Path,
    translator: Translator,
    source: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a word about shards: these end when there is work enough."""
    output, translate, calls = source.with_name("out.txt"), Translator.translate, 0

    def interrupted(self: Translator, *given: Any, **how: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return translate(self, *given, **how)

    command = ["bulk", "-m", str(folder), str(source), str(output), "--device", "cpu", "--precision", "fp64"]
    monkeypatch.setattr(Translator, "portion", Portion(6, 2))
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", interrupted)
        assert main(command) == 130
    assert capsys.readouterr().err.splitlines()[-1] == ("Interrupted: kept 3 of 8 records; the same command continues.")
    assert main(command) == 0
    assert "Going on with 3 of 4 shards" in capsys.readouterr().err
    assert list(read_lines(output)) == [one.text for one in translator.translate(LINES)]


def test_larger_models_do_less_at_a_time(translator: Translator) -> None:
    parameters = sum(one.numel() for one in translator.part("model").parameters())
    assert translator.portion.characters == pytest.approx(1e12 / parameters)
    assert translator.portion.records(4096, 1.0) == 4096
    assert Portion(1000, 64).records(4096, 100.0) == 64


@settings(max_examples=20)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=3))
def test_killed_at_any_moment_and_gone_on_with_is_one_run(
    translator: Translator, tmp_path_factory: pytest.TempPathFactory, moments: list[int]
) -> None:
    """By kill -9 before some operation on files, as many times as there are moments."""
    place = tmp_path_factory.mktemp("killed")
    source, output = place / "in.txt", place / "out.txt"
    source.write_bytes("".join(f"{line}\n" for line in LINES).encode())
    said = [one.text for one in translator.translate(LINES)]
    by_line = dict(zip(LINES, said, strict=True))

    class Told:  # no threads of PyTorch's in forked processes, and no time lost
        def translate(self, texts: list[str], *given: Any, **how: Any) -> list[Translation]:
            return [Translation(by_line[text]) for text in texts]

    def job() -> None:
        made = Job.of(source, output, TextLines(), 3)
        with made.begun({"model": 1}):
            run(made, Work(lambda: cast(Translator, Told()), None, {}), here, 3, nothing)
            made.finish()

    for moment in moments:
        killed(job, moment)
        assert not output.exists() or list(read_lines(output)) == said  # whole or not at all
    job()
    assert list(read_lines(output)) == said
    assert sorted(path.name for path in place.iterdir()) == ["in.txt", "out.txt"]


@pytest.mark.parametrize(("option", "whole"), [([], None), (["--whole"], True), (["--sentences"], False)])
def test_lines_are_read_as_asked(
    folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch, option: list[str], whole: bool | None
) -> None:
    asked, translate = set(), Translator.translate

    def noted(self: Translator, *given: Any, **how: Any) -> Any:
        asked.add(how["whole"])
        return translate(self, *given, **how)

    monkeypatch.setattr(Translator, "translate", noted)
    assert main(["bulk", "-m", str(folder), str(source), str(source.with_name("out")), "--device", "cpu", *option]) == 0
    assert asked == {whole}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-file", "out"], "no-such-file: expected a file of records, found none"),
        (["in.txt", "."], "found a folder"),
        (["in.txt", "in.txt"], "OUTPUT expects another file than those that are read, found in.txt"),
        (["in.txt", "-"], "OUTPUT expects a file, of which parts are read and written, found '-'"),
        (["-", "out"], "INPUT expects a file"),
        (["in.txt.gz", "out"], "not compressed"),
        (["in.txt", "out", "--format", "csv"], "--format expects"),
        (["in.jsonl", "out", "--into", "text"], "--into expects another field"),
        (["in.txt", "out", "--workers", "2"], "--workers expects --cluster"),
        (["in.txt", "out", "--decoder", "nothing"], "no decoder"),
        (["bad.txt", "out"], "bad.txt, line 2: expected UTF-8"),
    ],
)
def test_what_is_wrong_is_said_first(
    folder: Path,
    source: Path,
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(source.parent)
    Path("bad.txt").write_bytes(b"a\n\xff\n")
    assert main(["bulk", "-m", str(folder), "--device", "cpu", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not Path("out").exists()
    assert not Path("-").exists()


def test_without_ray_it_says_what_to_install(
    source: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert main(["bulk", str(source), str(source.with_name("out")), "--cluster", "local"]) == 2
    assert "pip install 'longstride[cluster]'" in capsys.readouterr().err
