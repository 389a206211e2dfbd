import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride import bench
from longstride.bench import figure
from longstride.bench.page import TOPICS, sections
from longstride.bench.records import Record, Training
from longstride.bench.report import insert_all, render
from longstride.contract import InputError, UsageError
from longstride.tasks.score import LengthBin

from .conftest import make_origin, make_quality
from .test_tables import BLEU, bench_run

NAME = "decoders-en-de-test-fast-device-batch-1"
FIGURES = [f"{NAME}-{kind}.svg" for kind in ("quality", "lengths", "sentences")]


@pytest.fixture
def records() -> list[Record]:
    return [*bench_run().records, Training(make_origin(), "teacher", "r.yaml", 52_000_000, 10, 6.5, 5e5, (BLEU,))]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_rendering_twice_changes_nothing(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    written = render(records, tmp_path)
    tables = [f"{kind}-{NAME}.csv" for kind in ("latency", "work")]
    pages = ["results.md", "comparisons.md", "training.md"]
    assert sorted(path.name for path in written) == sorted([*FIGURES, *pages, *tables])
    before = snapshot(tmp_path)
    assert render(records, tmp_path) == []
    assert snapshot(tmp_path) == before


def test_checking_says_what_is_stale_and_touches_nothing(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    assert len(render(records, tmp_path, check=True)) == 8
    assert snapshot(tmp_path) == {}
    render(records, tmp_path)
    before = snapshot(tmp_path)
    fewer = records[:2] + records[4:]
    stale = render(fewer, tmp_path, check=True)
    assert {*FIGURES, "results.md", "comparisons.md", f"latency-{NAME}.csv"} <= {path.name for path in stale}
    assert snapshot(tmp_path) == before
    render(fewer, tmp_path)
    assert not (tmp_path / "figures" / f"{NAME}-sentences.svg").exists(), "it has nothing left to show"
    assert render(fewer, tmp_path, check=True) == []


UNSCORED = LengthBin(1, 9, 60, ())


@settings(max_examples=6)
@given(st.sets(st.integers(0, 5)), st.tuples(st.booleans(), st.booleans()))
def test_records_without_scores_are_rendered_without(unscored: set[int], binned: tuple[bool, bool]) -> None:
    """Of a whole run too, and where sources of some length have none."""
    pytest.importorskip("matplotlib")
    bins = [
        tuple(UNSCORED if each else replace(UNSCORED, scores=(BLEU,)) for each in order)
        for order in (binned, binned[::-1])
    ]
    made = [make_quality(name, f"{name}|v1", by_length=one) for name, one in zip(("greedy", "beam"), bins, strict=True)]
    every = [*bench_run().records, *made]
    with tempfile.TemporaryDirectory() as folder:
        assert render(
            [replace(one, scores=()) if place in unscored else one for place, one in enumerate(every)], folder
        )


def test_a_figure_drawn_otherwise_is_drawn_anew_but_passes_a_check(tmp_path: Path, records: list[Record]) -> None:
    """A check sees the data alone, so that it says the same beside every version of matplotlib, and without any."""
    pytest.importorskip("matplotlib")
    render(records, tmp_path)
    figure = tmp_path / "figures" / f"{NAME}-quality.svg"
    drawn = figure.read_text()
    figure.write_text(drawn.replace("</svg>", "<!-- drawn otherwise --></svg>"))
    assert render(records, tmp_path, check=True) == []
    assert render(records, tmp_path) == [figure]
    assert figure.read_text() == drawn
    figure.write_text("<svg></svg>")
    assert render(records, tmp_path, check=True) == render(records, tmp_path) == [figure]


def test_drawing_code_that_changed_is_seen_and_last_digits_are_not(
    tmp_path: Path, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    render(records, tmp_path)
    before = snapshot(tmp_path)
    for change, redrawn in ((1e-9, []), (3.0, [f"{NAME}-quality.svg", f"{NAME}-lengths.svg", f"{NAME}-sentences.svg"])):
        style = {**figure._STYLE, "font.size": figure._STYLE["font.size"] + change}
        monkeypatch.setattr(figure, "_STYLE", style)
        assert render(records, tmp_path, check=True) == []
        assert [path.name for path in render(records, tmp_path)] == redrawn
        assert (snapshot(tmp_path) == before) is not bool(redrawn)


def test_figures_that_are_up_to_date_need_no_matplotlib(
    tmp_path: Path, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    render(records, tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert render(records, tmp_path) == []
    (tmp_path / "figures" / f"{NAME}-quality.svg").unlink()
    with pytest.raises(UsageError, match="Plots need matplotlib"):
        render(records, tmp_path)


@given(st.lists(st.floats(-900, 900), min_size=1), st.data())
def test_pictures_are_alike_up_to_the_last_digits(numbers: list[float], data: st.DataObject) -> None:
    def picture(values: list[float], name: str, colour: str) -> str:
        points = " L ".join(f"{value:.6f}" for value in values)
        return f'<path id="m{name}" d="M {points}" style="fill: {colour}"/>'

    first = picture(numbers, "0123456789", "#0072b2")
    small = [number + data.draw(st.floats(-0.009, 0.009)) for number in numbers]
    assert figure.alike(first, picture(small, "abcdef0123", "#0072b2"))
    place = data.draw(st.integers(0, len(numbers) - 1))
    moved = [number + 0.02 * (number_place == place) for number_place, number in enumerate(numbers)]
    assert not figure.alike(first, picture(moved, "0123456789", "#0072b2"))
    assert not figure.alike(first, picture(numbers, "0123456789", "#0073b2"))
    assert not figure.alike(first, picture([*numbers, 1.0], "0123456789", "#0072b2"))


def test_files_of_other_people_in_its_folder_are_left_alone(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    mine = [tmp_path / "results" / name for name in ("notes.md", "data.csv", "raw/data.csv")]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    render(records, tmp_path)
    assert render(records, tmp_path, check=True) == []
    gone = render([], tmp_path)
    assert tmp_path / "results" / "comparisons.md" in gone
    assert not list((tmp_path / "results" / "tables").glob("*.csv"))
    assert [path.read_text() for path in mine] == ["mine"] * 3


def test_every_topic_may_be_removed() -> None:
    assert sorted(TOPICS) == sorted(path.stem for path in Path(bench.__file__).parent.glob("pages/*.toml"))


def test_figures_drawn_by_hand_are_left_alone(tmp_path: Path, records: list[Record]) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "by-hand.svg").write_text("<svg></svg>")
    assert render([], tmp_path, check=True) == [tmp_path / "results.md"]


def test_markers_are_filled_and_checked(tmp_path: Path, records: list[Record]) -> None:
    page = tmp_path / "README.md"
    figure = f"<!-- report:figure/{NAME}-quality -->\n<!-- /report -->"
    text = f"Before\n<!-- report:training -->\nold\n<!-- /report -->\nmiddle\n{figure}\nafter\n"
    page.write_text(text)
    assert insert_all(page, records, tmp_path / "docs", check=True)
    assert page.read_text() == text
    assert insert_all(page, records, tmp_path / "docs")
    filled = page.read_text()
    assert "| teacher |" in filled
    assert "old" not in filled
    assert f"](docs/figures/{NAME}-quality.svg)" in filled
    assert filled.startswith("Before\n<!-- report:training -->\n\n| run")
    assert filled.endswith("<!-- /report -->\nafter\n")
    assert not insert_all(page, records, tmp_path / "docs"), "filling again changes nothing"
    inner = tmp_path / "docs" / "guide"
    inner.mkdir(parents=True)
    (inner / "page.md").write_text(f"<!-- report:figure/{NAME}-quality -->\n<!-- /report -->\n")
    insert_all(inner / "page.md", records, tmp_path / "docs")
    assert f"](../figures/{NAME}-quality.svg)" in (inner / "page.md").read_text()


def test_a_marker_may_ask_for_some_rows(tmp_path: Path, records: list[Record]) -> None:
    page = tmp_path / "page.md"
    whole = (
        next(text for name, text in sections(records).items() if name.startswith("summary/")).strip().split("\n\n")[0]
    )
    head, line, *rows = whole.splitlines()
    rows = [row.replace(" †", "  ") for row in rows]
    names = [row.split("|")[1].strip() for row in rows]
    assert len(rows) > 1
    name = next(name for name in sections(records) if name.startswith("summary/"))
    page.write_text(f"<!-- report:{name} rows: {names[-1]}; {names[0]} -->\n<!-- /report -->\n")
    assert insert_all(page, records, tmp_path)
    opening, *shown, _ = page.read_text().split("\n\n")
    assert opening == f"<!-- report:{name} rows: {names[-1]}; {names[0]} -->"
    assert shown == ["\n".join([head, line, rows[-1], rows[0]])], "and no note below"
    assert not insert_all(page, records, tmp_path)
    page.write_text(f"<!-- report:{name} rows: nobody -->\n<!-- /report -->\n")
    with pytest.raises(InputError, match="found 'nobody'"):
        insert_all(page, records, tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<!-- report:gossip -->\n<!-- /report -->\n", "found 'gossip'"),
        ("<!-- report:training -->\nno end\n", "found fewer ends than markers"),
    ],
)
def test_bad_markers_are_named(tmp_path: Path, records: list[Record], text: str, found: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(InputError, match=found):
        insert_all(page, records, tmp_path)
    assert page.read_text() == text
    with pytest.raises(InputError, match="found: No such file"):
        insert_all(tmp_path / "none.md", records, tmp_path)
