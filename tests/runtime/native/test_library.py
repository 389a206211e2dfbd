"""The library lies inside the package: built with it, one for each instruction set, the best one taken at run time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from longstride.runtime.native import building
from longstride.runtime.native.building import X86, build, library_name, noted, variants
from longstride.runtime.native.library import FORCED, NoLibraryError, NotBuiltError, chosen, load, missed
from longstride.runtime.processor import Processor
from tests.runtime.native.conftest import RUNNABLE, THIS, forget
from tests.runtime.native.harness import needs_library
from tests.runtime.native.small_graphs import graph_of, numbers, spec_of

NEWEST = Processor(THIS.machine, frozenset().union(*(one.needs for one in variants(THIS.machine))))

needs_compiler = pytest.mark.skipif(building.find_compiler() is None, reason="there is no C compiler")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two small files in place of ours."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "one.c").write_text('#include "number.h"\nint one(void) { return NUMBER; }\n')
    (folder / "two.c").write_text("int two(void) { return 2; }\n")
    (folder / "number.h").write_text("#define NUMBER 1\n")
    return folder


@needs_compiler
def test_every_variant_is_built_and_the_best_is_taken(source: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "lib", tmp_path / "again"):
        build(folder, source, tmp_path / folder.name / "objects")
        built = noted(folder)["built"]
        assert isinstance(built, list)
        assert [library_name(name) for name in built] == [
            library_name(one.name) for one in variants(THIS.machine) if (folder / library_name(one.name)).is_file()
        ]
        assert chosen(folder, NEWEST, source=source) == folder / library_name(built[0])
        assert chosen(folder, NEWEST, built[-1], source) == folder / library_name(built[-1])
        found = load(chosen(folder, THIS, source=source))
        assert (found.one(), found.two()) == (1, 2)
    name = library_name(built[0])
    assert (tmp_path / "lib" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()  # reproducible


@needs_compiler
def test_what_was_built_from_other_sources_is_not_used(source: Path, tmp_path: Path) -> None:
    folder, objects = tmp_path / "lib", tmp_path / "objects"
    build(folder, source, objects)
    before = {path: path.stat().st_mtime_ns for path in objects.rglob("*.o")}
    for name, text in (("number.h", "#define NUMBER 3\n"), ("two.c", "int two(void) { return 4; }\n")):
        (source / name).write_text(text)
        with pytest.raises(NotBuiltError, match="run `make native`"):
            chosen(folder, NEWEST, source=source)
        build(folder, source, objects)
    found = load(chosen(folder, THIS, source=source))
    assert (found.one(), found.two()) == (3, 4)
    assert not before.keys() & set(objects.rglob("*.o"))  # all changed, and what is old is gone
    assert len(list(objects.rglob("*.o"))) == len(before)


@needs_compiler
def test_one_variant_is_built_and_the_others_are_added(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, second = (building.Variant(name, (), frozenset()) for name in ("plain", "second"))
    monkeypatch.setattr(building, "variants", lambda machine: (plain, second))
    folder, objects = tmp_path / "lib", tmp_path / "objects"
    monkeypatch.setattr(building, "noted", lambda: noted(folder))
    monkeypatch.setattr(building, "fingerprint", lambda source=source, of=building.fingerprint: of(source))
    assert not building.is_current(["plain"])
    assert build(folder, source, objects, ["plain"]) == {}
    before = {path: path.stat().st_mtime_ns for path in objects.rglob("*.o")}
    assert (building.is_current(["plain"]), building.is_current()) == (True, False)
    assert build(folder, source, objects) == {}
    assert noted(folder)["built"] == ["plain", "second"]
    assert building.is_current()
    assert before.items() <= {path: path.stat().st_mtime_ns for path in objects.rglob("*.o")}.items()


@needs_compiler
def test_a_variant_that_the_compiler_does_not_know_is_left_out(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = building.Variant("newest", ("-march=of-next-year",), frozenset())
    plain = building.Variant("plain", (), frozenset())
    monkeypatch.setattr(building, "variants", lambda machine: (unknown, plain))
    failed = build(tmp_path / "lib", source, tmp_path / "objects")
    assert list(failed) == ["newest"]
    assert "of-next-year" in failed["newest"]
    assert noted(tmp_path / "lib")["built"] == ["plain"]


def test_without_a_compiler_the_install_succeeds_and_the_reason_is_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CC", "nothing")
    build(tmp_path / "lib", source, tmp_path / "objects")
    with pytest.raises(
        NotBuiltError, match=r"was not built when longstride was installed: there was no C compiler.*apt install gcc"
    ):
        chosen(tmp_path / "lib", NEWEST, source=source)


@needs_compiler
def test_a_compiler_that_fails_is_said(source: Path, tmp_path: Path) -> None:
    (source / "one.c").write_text("int one(void) { return nothing; }\n")
    build(tmp_path / "lib", source, tmp_path / "objects")
    with pytest.raises(NoLibraryError, match=r"failed \(.*nothing.*install longstride again"):
        chosen(tmp_path / "lib", NEWEST, source=source)


def test_the_environment_names_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own-cc"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("CC", f"{own} -m64")
    assert building.find_compiler() == [os.fspath(own), "-m64"]


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (X86[0].needs, "amx"),
        (X86[1].needs | {"amx_tile"}, "avx512vnni"),
        (X86[2].needs | {"avx_vnni"}, "avx512"),
        (X86[3].needs, "avxvnni"),
        (X86[2].needs - {"avx512f"}, "avx2"),
    ],
)
def test_the_best_that_a_processor_can_run(flags: frozenset[str], name: str, tmp_path: Path) -> None:
    note = {"fingerprint": building.fingerprint(), "built": [one.name for one in X86], "failed": {}}
    (tmp_path / building.NOTE).write_text(json.dumps(note))
    assert chosen(tmp_path, Processor("x86_64", flags)).name == library_name(name)
    with pytest.raises(NoLibraryError, match="this processor can run none of its variants"):
        chosen(tmp_path, Processor("x86_64", frozenset({"sse2"})))
    with pytest.raises(NoLibraryError, match="amy was asked for"):
        chosen(tmp_path, Processor("x86_64", flags), "amy")


def test_a_better_library_that_was_not_built_is_told(tmp_path: Path) -> None:
    processor = Processor("x86_64", X86[2].needs)
    note = {"fingerprint": building.fingerprint(), "built": ["avx2"], "failed": {"amx": "no", "avx512": "it timed out"}}
    (tmp_path / building.NOTE).write_text(json.dumps(note))
    told = missed(tmp_path, processor)
    assert told is not None
    assert "uses native-avx2.so, as its library for avx512 was not built (it timed out): run `make native`" in told
    (tmp_path / building.NOTE).write_text(json.dumps(note | {"built": ["avx512", "avx2"]}))
    assert missed(tmp_path, processor) is None


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"built": 1}'])
def test_what_was_never_built_is_said(note: str, tmp_path: Path) -> None:
    (tmp_path / building.NOTE).write_text(note)
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotBuiltError, match="is not built: run `make native`"):
            chosen(folder, NEWEST)


def test_what_is_no_library_is_said(tmp_path: Path) -> None:
    (tmp_path / "none.so").write_text("no")
    with pytest.raises(NoLibraryError, match="cannot be loaded"):
        load(tmp_path / "none.so")


@needs_library()
def test_every_variant_gives_the_same_but_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = numbers(1, 20, 200), numbers(100, 200, seed=1)
    spec = spec_of(
        lambda builder, given: {"y": builder.linear(given["x"], weight)},
        {"x": x},
        {"y": numbers(1, 20, 100)},
    )
    found = []
    for name in RUNNABLE:
        monkeypatch.setenv(FORCED, name)
        forget()
        found.append([graph_of(spec, int8)(spec.feeds({"x": x}))["y"] for int8 in (False, True)])
    monkeypatch.delenv(FORCED)
    forget()
    assert len(found) == len(RUNNABLE) > 0
    for exact, coarse in found:
        torch.testing.assert_close(exact, found[0][0], rtol=1e-5, atol=1e-4)
        assert (coarse - exact).std() < 0.02 * exact.std()
