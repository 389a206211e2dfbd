from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import InputError, Limits, OptionError, UsageError
from longstride.contract.decoding import HARD_LIMITS
from longstride.contract.options import as_dict, parse
from longstride.distillation import distill as distilling
from longstride.distillation.decoding import Teacher
from longstride.distillation.degenerate import Rules
from longstride.distillation.distill import Progress, distill, distill_lines
from longstride.distillation.options import DistillOptions, ShardRange
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Sample, SampleOptions
from longstride.text.corpus import write_lines
from tests.models import tiny_model

LINES = [f"{'word ' * (number % 7)}{number} é" for number in range(23)]
SMALL = DistillOptions(shard_lines=5, group_lines=2, capacity=2)


def text_files(folder: Path) -> dict[str, bytes]:
    """All that must not depend on interruptions: everything but times."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert not [name for name in files if Path(name).name.startswith(".")]
    result = {}
    for name, path in files.items():
        result[name] = path.read_bytes()
        if path.suffix == ".json":
            record = json.loads(result[name])
            for measured in ("seconds", "minutes", "sentences_per_second"):
                record.pop(measured, None)
            result[name] = json.dumps(record).encode()
    return result


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_pairs_stay_pairs_in_corpus_order(teacher: Teacher, tmp_path: Path) -> None:
    outcome = distill_lines(teacher, LINES, tmp_path, SMALL)
    assert read(tmp_path / "train.src") == LINES
    assert read(tmp_path / "train.tgt") == LINES
    assert (outcome.made, outcome.complete, outcome.shards) == (5, 5, 5)
    assert outcome.manifest == json.loads((tmp_path / "manifest.json").read_text())


def test_what_a_line_draws_hangs_on_no_shard_or_group(tmp_path: Path) -> None:
    """But on the seeds: the decoder's and that of the distilling."""
    model = tiny_model(1, sharpness=0.5)
    teacher = Teacher(
        Sample(model, EagerRunner(precision="fp64"), SampleOptions(seed=3)),
        lambda lines: [[5 + len(word) % 6 for word in line.split()] for line in lines],
        lambda rows: [" ".join(map(str, row)) for row in rows],
        ("aa",),
        "cc",
        Limits(max_length=8),
    )

    def drawn(options: DistillOptions) -> list[str]:
        folder = tmp_path / f"{options.shard_lines}-{options.seed}"
        distill_lines(teacher, LINES, folder, replace(options, keep_all=True))
        return read(folder / "train.tgt")

    found = drawn(SMALL)
    assert drawn(replace(SMALL, shard_lines=23)) == found
    assert drawn(replace(SMALL, seed=2)) != found


def test_the_manifest_says_what_was_done(teacher: Teacher, tmp_path: Path) -> None:
    manifest = distill_lines(teacher, [*LINES, ""], tmp_path, SMALL, name="news.en").manifest
    assert manifest is not None
    assert manifest["teacher"] == ["aa", "bb"]
    assert manifest["decoder"] == "copy|fake"
    assert manifest["source"] == "news.en"
    assert (manifest["lines"], manifest["kept"], manifest["dropped"]) == (24, 23, 1)
    assert manifest["degenerate"] == {"empty source": 1}
    assert manifest["tokens"] == sum(map(len, LINES))
    every = as_dict(Limits())  # but those that few decoders obey, unless they are set
    assert manifest["limits"] == {**{name: every[name] for name in every if name not in HARD_LIMITS}, "banned": []}
    assert set(manifest["files"]) == {"train.src", "train.tgt"}
    assert manifest["seed"] == 1
    assert manifest["sentences_per_second"] > 0


@pytest.mark.parametrize("stop_after", [0, 1, 4, 9])
def test_resuming_gives_the_same_bytes_as_never_stopping(
    teacher: Teacher, decoder, tmp_path: Path, stop_after: int
) -> None:
    distill_lines(teacher, LINES, tmp_path / "whole", SMALL)
    decoder.groups.clear()
    decoder.stop_after = stop_after
    with pytest.raises(KeyboardInterrupt):
        distill_lines(teacher, LINES, tmp_path / "stopped", SMALL)
    done = len(list((tmp_path / "stopped").rglob("shard-*.json")))
    assert done == stop_after // 3  # five lines are three groups; the shard at work leaves nothing behind
    assert not (tmp_path / "stopped" / "manifest.json").exists()
    decoder.stop_after = None
    outcome = distill_lines(teacher, LINES, tmp_path / "stopped", SMALL, resume=True)
    assert outcome.made == 5 - done
    assert text_files(tmp_path / "stopped") == text_files(tmp_path / "whole")


def test_without_resume_existing_shards_are_left_alone(teacher: Teacher, tmp_path: Path) -> None:
    distill_lines(teacher, LINES, tmp_path, SMALL)
    before = text_files(tmp_path)
    with pytest.raises(UsageError, match="resume"):
        distill_lines(teacher, LINES, tmp_path, SMALL)
    assert text_files(tmp_path) == before


def test_a_finished_folder_resumes_to_itself(teacher: Teacher, decoder, tmp_path: Path) -> None:
    distill_lines(teacher, LINES, tmp_path, SMALL)
    before = text_files(tmp_path)
    decoder.stop_after = 0
    assert distill_lines(teacher, LINES, tmp_path, SMALL, resume=True).made == 0
    assert text_files(tmp_path) == before


def test_processes_share_a_folder(teacher: Teacher, tmp_path: Path) -> None:
    distill_lines(teacher, LINES, tmp_path / "one", SMALL)
    last = replace(SMALL, shards=ShardRange.from_text("2:"))
    first = replace(SMALL, shards=ShardRange.from_text("0:2"))
    outcome = distill_lines(teacher, LINES, tmp_path / "two", last, resume=True)
    assert (outcome.made, outcome.complete, outcome.manifest) == (3, 3, None)
    assert distill_lines(teacher, LINES, tmp_path / "two", first, resume=True).manifest is not None
    assert text_files(tmp_path / "two") == text_files(tmp_path / "one")


@pytest.mark.parametrize("stop_after", [1, 4, 7])
def test_a_corpus_ends_with_the_shard_in_which_time_is_over(
    teacher: Teacher, decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    """Stopped on the way and resumed, with the same one; every shard takes a second here."""
    ticks = count()
    monkeypatch.setattr(distilling, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    outcome = distill_lines(teacher, LINES, tmp_path / "whole", SMALL, seconds=2.5)
    assert (outcome.made, outcome.complete, outcome.shards) == (3, 3, 3)
    assert outcome.manifest is not None
    assert (outcome.manifest["kept"], outcome.manifest["dropped"]) == (15, 0)
    assert read(tmp_path / "whole" / "train.src") == LINES[:15]
    decoder.groups.clear()
    decoder.stop_after = stop_after
    with pytest.raises(KeyboardInterrupt):
        distill_lines(teacher, LINES, tmp_path / "stopped", SMALL, seconds=2.5)
    decoder.stop_after = None
    distill_lines(teacher, LINES, tmp_path / "stopped", SMALL, resume=True, seconds=2.5)
    assert text_files(tmp_path / "stopped") == text_files(tmp_path / "whole")


def test_shards_that_do_not_exist_are_refused(teacher: Teacher, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="5 shards"):
        distill_lines(teacher, LINES, tmp_path, replace(SMALL, shards=ShardRange(5)))


def other_teacher(teacher: Teacher, lines: Sequence[str], options: DistillOptions):
    return replace(teacher, hashes=("aa",)), lines, options


def other_limits(teacher: Teacher, lines: Sequence[str], options: DistillOptions):
    return replace(teacher, limits=Limits(max_length=9)), lines, options


def other_vocabulary(teacher: Teacher, lines: Sequence[str], options: DistillOptions):
    return replace(teacher, vocabulary="dd"), lines, options


def other_data(teacher: Teacher, lines: Sequence[str], options: DistillOptions):
    return teacher, ["x", *lines[1:]], options


def fewer_lines(teacher: Teacher, lines: Sequence[str], options: DistillOptions):
    return teacher, lines[:9], options


def other_shards(teacher: Teacher, lines: Sequence[str], options: DistillOptions):
    return teacher, lines, replace(options, shard_lines=6)


def other_rules(teacher: Teacher, lines: Sequence[str], options: DistillOptions):
    return teacher, lines, replace(options, rules=Rules(max_run=2))


def other_decoder(teacher: Teacher, lines: Sequence[str], options: DistillOptions):
    class Other(type(teacher.decoder)):
        signature = "copy|other"

    return replace(teacher, decoder=Other()), lines, options


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (other_teacher, "teacher"),
        (other_limits, "limits"),
        (other_vocabulary, "vocabulary"),
        (other_data, "data"),
        (fewer_lines, "data"),
        (other_shards, "shard_lines"),
        (other_rules, "rules"),
        (other_decoder, "decoder"),
    ],
)
def test_shards_of_another_origin_are_not_mixed_in(teacher: Teacher, tmp_path: Path, change, named: str) -> None:
    distill_lines(teacher, LINES, tmp_path, replace(SMALL, shards=ShardRange(0, 2)))
    before = text_files(tmp_path)
    with pytest.raises(UsageError, match=rf"shard-00000\.json: expected a shard with {named} .*, found .*folder"):
        distill_lines(*change(teacher, LINES, SMALL)[:2], tmp_path, change(teacher, LINES, SMALL)[2], resume=True)
    assert text_files(tmp_path) == before


def test_what_only_bounds_memory_may_change(teacher: Teacher, tmp_path: Path) -> None:
    distill_lines(teacher, LINES, tmp_path / "one", SMALL)
    distill_lines(teacher, LINES, tmp_path / "two", replace(SMALL, shards=ShardRange(0, 2)))
    larger = replace(SMALL, capacity=7, tokens=900, group_lines=9)
    distill_lines(teacher, LINES, tmp_path / "two", larger, resume=True)
    assert text_files(tmp_path / "two") == text_files(tmp_path / "one")


def test_a_damaged_shard_is_made_again(teacher: Teacher, tmp_path: Path) -> None:
    distill_lines(teacher, LINES, tmp_path, SMALL)
    before = text_files(tmp_path)
    (tmp_path / "shards" / "shard-00001.txt").write_text("cut off")
    (tmp_path / "shards" / "shard-00003.txt").unlink()
    assert distill_lines(teacher, LINES, tmp_path, SMALL, resume=True).made == 2
    assert text_files(tmp_path) == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (None, "expected the record"),
        ({"origin": 3}, "expected the record"),
        ({"degenerate": []}, "expected the record"),
        ({"seconds": "long"}, "expected the record"),
        ({"tokens": None}, "expected the record"),
        ({"file": 3}, "expected the record"),
        ({"file": "../../precious.txt"}, "expected the text of this shard"),
        ({"file": "shard-00002.txt"}, "expected the text of this shard"),
    ],
)
def test_a_damaged_record_is_named(teacher: Teacher, tmp_path: Path, changes: dict | None, told: str) -> None:
    distill_lines(teacher, LINES, tmp_path, SMALL)
    file = tmp_path / "shards" / "shard-00001.json"
    file.write_text("[" * 100_000 if changes is None else json.dumps(json.loads(file.read_text()) | changes))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=rf"shard-00001\.json: {told}"):
        distill_lines(teacher, LINES, tmp_path, SMALL, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("keep_all", [False, True])
def test_degenerate_outputs_are_dropped_and_counted(teacher: Teacher, decoder, tmp_path: Path, keep_all: bool) -> None:
    lines = ["good", "", "nothing", "   ", "round", "fine", "x" * 300]
    answers = {"nothing": "", "round": "abc" * 5}
    decoder.answer = lambda ids: teacher.encode([answers.get(text := teacher.decode([ids])[0], text)])[0]
    options = DistillOptions(keep_all=keep_all, name="valid")
    manifest = distill_lines(teacher, lines, tmp_path, options).manifest
    assert manifest is not None
    assert manifest["degenerate"] == {"empty output": 1, "empty source": 2, "loop": 1, "source too long": 1}
    if keep_all:
        assert read(tmp_path / "valid.src") == lines
        # A source over the limit is cut, its output with it.
        assert read(tmp_path / "valid.tgt") == ["good", "", "", "", "abc" * 5, "fine", "x" * 255]
    else:
        assert read(tmp_path / "valid.src") == read(tmp_path / "valid.tgt") == ["good", "fine"]
    assert manifest["kept"] == (7 if keep_all else 2)


def test_a_teacher_is_not_shown_more_than_it_can_read(teacher: Teacher, decoder, tmp_path: Path) -> None:
    short = replace(teacher, longest_source=10)
    manifest = distill_lines(short, ["x", "abcdefghi", "abcdefghij"], tmp_path).manifest
    assert manifest is not None
    assert manifest["degenerate"] == {"source too long": 1}
    assert manifest["longest_source"] == 10
    assert max(width for _, width, _ in decoder.groups) == 10


def test_line_breaks_in_outputs_become_spaces(teacher: Teacher, decoder, tmp_path: Path) -> None:
    decoder.answer = lambda ids: teacher.encode(["a\nb\rc"])[0]
    distill_lines(teacher, ["abc d"], tmp_path)
    assert read(tmp_path / "train.tgt") == ["a b c"]


@pytest.mark.parametrize("compression", ["none", "gz", "xz"])
def test_files_are_read_and_written_compressed(teacher: Teacher, tmp_path: Path, compression: str) -> None:
    write_lines(tmp_path / "in.xz", LINES)
    options = replace(SMALL, compression=compression)
    manifest = distill(teacher, tmp_path / "in.xz", tmp_path / "out", options).manifest
    plain = distill_lines(teacher, LINES, tmp_path / "plain", SMALL).manifest
    assert manifest is not None
    assert plain is not None
    assert manifest["data"] == plain["data"]
    if compression == "xz":
        with lzma.open(tmp_path / "out" / "train.tgt.xz", "rt", encoding="utf-8") as file:
            assert file.read().splitlines() == LINES


def test_a_corpus_without_lines_is_refused(teacher: Teacher, tmp_path: Path) -> None:
    write_lines(tmp_path / "empty.txt", [])
    with pytest.raises(InputError, match=r"empty\.txt: expected lines"):
        distill(teacher, tmp_path / "empty.txt", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_progress_counts_the_lines_still_to_do(teacher: Teacher, tmp_path: Path) -> None:
    distill_lines(teacher, LINES, tmp_path, replace(SMALL, shards=ShardRange(1, 2)))
    seen: list[Progress] = []
    distill_lines(teacher, LINES, tmp_path, SMALL, resume=True, progress=seen.append)
    assert [step.lines for step in seen] == sorted(step.lines for step in seen)
    assert (seen[-1].lines, seen[-1].of) == (18, 18)
    assert {step.shard for step in seen} == {0, 2, 3, 4}


@given(st.integers(0, 20), st.none() | st.integers(21, 40), st.integers(1, 60))
def test_shard_ranges_round_trip_and_stay_inside(first: int, last: int | None, shards: int) -> None:
    wanted = ShardRange(first, last)
    assert ShardRange.from_text(str(wanted)) == wanted
    assert list(wanted.of(shards)) == list(range(shards))[first:last]
    assert parse(DistillOptions, {"shards": str(wanted)}).shards == wanted


@pytest.mark.parametrize("text", ["3", "a:b", "4:4", "5:2", "-1:2", "1:2:3"])
def test_wrong_shard_ranges_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="first:last"):
        ShardRange.from_text(text)


def test_options_come_as_text_too() -> None:
    found = parse(DistillOptions, {"shard_lines": "10", "rules.max_run": "3", "compression": "xz", "keep_all": "yes"})
    assert found == DistillOptions(shard_lines=10, rules=Rules(max_run=3), compression="xz", keep_all=True)
    with pytest.raises(OptionError, match="capacity"):
        parse(DistillOptions, {"capacity": "0"})
