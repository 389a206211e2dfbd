"""A model folder on the ONNX runner: every decoder it offers, and what happens where a graph cannot be built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import longstride
from tests.family import write_family

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from longstride.runtime.onnx_builder import OnnxBuilder

LINES = ["a b c", "d d e f a", "b"]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("family") / "model")


def refuse(message: str) -> None:
    raise AssertionError(message)


def test_every_decoder_runs_by_graphs_and_translates_as_eagerly(family: Path) -> None:
    eager = longstride.load(family, device="cpu")
    graphs = longstride.load(family, runtime="onnx", threads=1, tell=refuse)
    for decoder in graphs.decoders:
        options = {"candidates": 4} if decoder == "lattice" else {}
        found, expected = (one.translate(LINES, decoder=decoder, **options) for one in (graphs, eager))
        assert [one.text for one in found] == [one.text for one in expected], decoder
        assert "|onnx|fp32|" in graphs.decoder(decoder)[0].signature


def test_every_decoder_runs_in_int8(family: Path) -> None:
    """Each line by itself as all of them together."""
    graphs = longstride.load(family, runtime="onnx", precision="int8", threads=1, tell=refuse)
    for decoder in graphs.decoders:
        options = {"candidates": 4} if decoder == "lattice" else {}
        together = [one.text for one in graphs.translate(LINES, decoder=decoder, **options)]
        assert [graphs.translate(line, decoder=decoder, **options) for line in LINES] == together, decoder


@pytest.mark.parametrize(
    ("decoder", "block", "program"),
    [
        ("interleaved", "write", "interleaved-step"),
        ("lattice", "in_portions", "score"),
        ("lattice", "additive", "encode"),
    ],
)
def test_what_a_graph_cannot_do_is_said_and_done_eagerly(
    family: Path, monkeypatch: pytest.MonkeyPatch, decoder: str, block: str, program: str
) -> None:
    def cannot(self: OnnxBuilder, *arguments: Any) -> Any:
        return self.node("NoSuchThing", arguments[0])

    told: list[str] = []
    expected = longstride.load(family, device="cpu").translate(LINES, decoder=decoder)
    graphs = longstride.load(family, runtime="onnx", threads=1, tell=told.append)
    monkeypatch.setattr(OnnxBuilder, block, cannot)
    found = graphs.translate(LINES, decoder=decoder)
    assert [one.text for one in found] == [one.text for one in expected]
    assert sum(f"the program {program!r} out eagerly in fp32" in message for message in told) == 1
