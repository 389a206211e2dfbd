"""The draft length of a call wins over stored, measured and automatic ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride import Translator, load
from longstride.cli.main import main
from longstride.model_folder import ModelFolder
from longstride.runtime.eager import EagerRunner
from longstride.verification import draining
from longstride.verification import session as decoders
from longstride.verification.batch_state import BatchState
from tests.decoding.test_draft_verify import write_drafted
from tests.folders import edit_config
from tests.runtime.test_cuda_graph import taped

BLOCK = 4
LINES = ["a b c d", "e f", "g h i j k l m", "b", "c d e", "a a b f g h"]
POLICIES = ("1:0", "1:2,3:7tree", "1:9tree", "2:0", "1:1,2:3")
STORED = st.fixed_dictionaries(
    {},
    optional={
        "k": st.integers(1, BLOCK),
        "tree": st.sampled_from([0, 5, 8]),
        "lengths": st.sampled_from(POLICIES),
        "adaptive": st.booleans(),
    },
)
ASKED = st.fixed_dictionaries({}, optional={"k": st.integers(1, BLOCK), "tree": st.sampled_from([0, 3, 6])}).filter(len)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_drafted(tmp_path_factory.mktemp("explicit") / "model", link=3)


@contextmanager
def watched() -> Iterator[set[tuple[bool, int, int]]]:
    """Collect the drafts of all iterations: a tree or not, tokens, depth. Drafts never pay here."""
    seen: set[tuple[bool, int, int]] = set()

    def watching(act: Callable[..., Any]) -> Callable[..., Any]:
        def told(self: Any, block: int, window: int) -> Any:
            depth = self.drafter.depth if self.drafter.trees else block
            seen.add((self.drafter.trees and block > 0, block, min(block, depth)))
            return act(self, block, window)

        return told

    with (
        patch.object(BatchState, "iteration", watching(BatchState.iteration)),
        patch.object(BatchState, "run", watching(BatchState.run)),  # where rows are refilled
        patch.multiple(draining, PATIENCE=0, LOOK_EVERY=1, LEAST_GAIN=1e9, WORTH=0, FEWER=2, LEAST_LEFT=0, CATCH_UP=0),
        patch.object(decoders, "timed", lambda lengths, run: {lengths[0]: 1.0}),  # measured: no drafts
        patch.object(decoders, "TIMES", -1),
    ):
        yield seen


def drafted(asked: dict[str, Any]) -> tuple[bool, int, int]:
    """Return the draft for k and tree: a chain of k tokens, or a tree at most k deep."""
    k, tree = asked.get("k", BLOCK), asked.get("tree", 0)
    return (tree > 0, tree or k, min(tree or k, k))


@settings(max_examples=10)
@given(stored=STORED, asked=ASKED, batch=st.integers(1, 6), lines=st.integers(1, 6), recorded=st.booleans())
def test_k_and_tree_that_are_asked_for_are_drafted(folder, stored, asked, batch, lines, recorded):
    """Whatever the folder stores, however many rows there are, and whether drafts pay or not."""
    runner = taped()[0] if recorded else EagerRunner("cpu", "fp64")
    config = ModelFolder(folder)
    config.decoders["draft-verify"].defaults.clear()
    config.decoders["draft-verify"].defaults.update(stored)
    translator = Translator(config, runner)
    with watched() as seen:
        found = translator.translate(LINES[:lines], "draft-verify", batch=batch, **asked)
    assert seen == {drafted(asked)}
    traced = translator.translate(LINES[:lines], "draft-verify", batch=batch, trace=True, **asked)
    most = max(event.drafted for one in traced for event in one.trace.events)
    assert most == drafted(asked)[1]
    assert [one.tokens for one in found] == [one.tokens for one in translator.translate(LINES[:lines], "greedy")]


@settings(max_examples=10)
@given(
    stored=STORED,
    policy=st.sampled_from(POLICIES),
    adaptive=st.booleans(),
    batch=st.integers(1, 6),
    lines=st.integers(1, 6),
)
def test_lengths_that_are_asked_for_are_drafted(folder, stored, policy, adaptive, batch, lines):
    """The same as where a folder stores nothing, and measures nothing."""
    seen = []
    for one, more in ((stored, {"adaptive": adaptive}), ({}, {})):
        config = ModelFolder(folder)
        config.decoders["draft-verify"].defaults.clear()
        config.decoders["draft-verify"].defaults.update(one)
        translator = Translator(config, EagerRunner("cpu", "fp64"))
        with watched() as drafts:
            translator.translate(LINES[:lines], "draft-verify", batch=batch, lengths=policy, **more)
        seen.append(drafts)
    assert seen[0] == seen[1]


@settings(max_examples=3)
@given(batch=st.integers(2, 6), recorded=st.booleans())
def test_what_a_folder_stores_holds_where_nothing_else_is_asked_for(folder, batch, recorded):
    """Options that say nothing of how much is drafted leave it as it is; `none` takes a stored value away."""
    config = ModelFolder(folder)
    config.decoders["draft-verify"].defaults.clear()
    config.decoders["draft-verify"].defaults.update({"tree": 5, "lengths": "1:2,2:7tree"})
    runner = taped()[0] if recorded else EagerRunner("cpu", "fp64")
    translator = Translator(config, runner)
    for asked, tokens in (
        ({}, 7),
        ({"shortlist": False}, 7),
        ({"k": None}, 7),
        ({"adaptive": False}, 7),
        ({"lengths": None, "shortlist": False}, 5),
    ):
        decoder, limits = translator.batched_decoder("draft-verify", **asked)
        session = decoder.start(batch, limits, 8)
        assert session._block == tokens


def test_stored_lengths_run_as_they_were_measured(folder: Path) -> None:
    """Drafts of a stored table are not given up, since none were while it was measured."""
    config = ModelFolder(folder)
    config.decoders["draft-verify"].defaults.clear()
    config.decoders["draft-verify"].defaults.update({"lengths": "1:3"})
    try:
        with watched() as seen:
            Translator(config, EagerRunner("cpu", "fp64")).translate(LINES[:1], "draft-verify", min_length=12)
        assert seen == {(False, 3, 3)}
    finally:
        config.decoders["draft-verify"].defaults.clear()


def test_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES))
    edit_config(folder, "decoders", "draft-verify", "defaults", value={"lengths": "1:0"})
    try:
        for asked, expected in (("tree=6", (True, 6, 4)), ("k=2", (False, 2, 2)), ("lengths=1:3", (False, 3, 3))):
            for batch in ("1", "4"):
                with watched() as seen:
                    told = ["-m", str(folder), "-i", str(tmp_path / "lines"), "-o", str(tmp_path / "out")]
                    where = ["--device", "cpu", "--runtime", "eager", "--precision", "fp64", "--batch", batch]
                    assert main(["translate", *told, *where, "--set", asked]) == 0
                assert seen == {expected}
    finally:
        edit_config(folder, "decoders", "draft-verify", "defaults", value={})


def test_drafts_that_nobody_asked_for_are_given_up_where_they_bring_nothing(folder: Path) -> None:
    """The test above could not fail otherwise."""
    translator = load(folder, device="cpu", runtime="eager", precision="fp64")
    with watched() as seen:
        translator.translate(LINES[:1], "draft-verify", min_length=12)
    assert (False, 0, 0) in seen
