"""Pictures from a NumPy file to a grid, by commands: prepared, learnt from, decoded, enlarged, scored, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from longstride import model_folder
from longstride.cli.main import main
from longstride.contract import Limits
from longstride.model_folder import DecoderConfig, ModelFolder, Part
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.text.pixels import PixelTokenizer, picture_of
from longstride.translator import load
from tests.cli.conftest import Run
from tests.models import tiny_model

pytest.importorskip("skimage")
PIXELS, SCALE = 8, 4
"""The tiny model's output and how many times its input that is a side: 2 x 2 pixels to 8 x 8."""


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of 8 x 8 pixels with heads."""
    return write_faces(tmp_path_factory.mktemp("faces") / "model", 224)


def write_faces(path: Path, longest: int) -> Path:
    tokenizer = PixelTokenizer()
    settings = {"vocabulary": tokenizer.size, "special": tokenizer.special, "positions": "picture", "longest": longest}
    model = tiny_model(1, torch.float32, 3.0, picture=PIXELS, picture_scale=SCALE, local_attention=32, **settings)
    torch.manual_seed(2)
    heads = Heads(HeadsOptions(4, 16, feed_forward=8)).eval().requires_grad_(False)
    nn.init.normal_(heads.down.weight, std=0.3)
    parts = {"model": Part("transformer", model.options, model), "heads": Part("heads", heads.options, heads)}
    decoders = {
        "blockwise": DecoderConfig({"model": "model", "heads": "heads"}),
        "greedy": DecoderConfig({"model": "model"}),
    }
    values = PIXELS * PIXELS * 3
    model_folder.write(
        path, parts, decoders, "blockwise", tokenizer, limits=Limits(max_length=values, min_length=values)
    )
    return path


@pytest.fixture
def lines(tmp_path: Path, run: Run) -> Path:
    """Random pictures as lines."""
    random = np.random.default_rng(3)
    arrays = {name: random.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8) for name, n in (("train", 6), ("test", 2))}
    np.savez(tmp_path / "some.npz", **arrays)
    assert run("pictures", "prepare", tmp_path / "some.npz", tmp_path / "lines").code == 0
    first = picture_of((tmp_path / "lines" / "test.8").read_text().splitlines()[0])
    small = picture_of((tmp_path / "lines" / "test.2").read_text().splitlines()[0])
    assert np.array_equal(first, arrays["test"][0])
    assert small[1, 0, 2] == np.rint(arrays["test"][0, 4:, :4, 2].mean())
    return tmp_path / "lines"


def test_from_lines_to_a_record_a_grid_and_a_sheet(faces: Path, lines: Path, run: Run, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    record, folder = tmp_path / "records.jsonl", tmp_path / "outputs"
    settings = "greedy,blockwise,blockwise:accept=distance:0,blockwise:accept=distance:80,blockwise:accept=top:3"
    how = ("-m", faces, "-s", lines / "test.2", "-r", lines / "test.8", "--task", "super-resolution", "--device", "cpu")
    ran = run("evaluate", *how, "--decoders", settings, "--record", record, "-o", folder, "--json")
    assert ran.code == 0, ran.err
    told = {one["name"]: one for one in json.loads(ran.out)}
    found = [json.loads(line) for line in record.read_text().splitlines()]
    assert len(found) == 5
    names = [score["name"] for score in found[0]["scores"]]
    assert names[:4] == ["PSNR", "SSIM", "PSNR (bicubic)", "SSIM (bicubic)"]
    written = {file.stem: file.read_text().splitlines() for file in folder.iterdir()}
    assert all(len(line) == 2 * 192 for each in written.values() for line in each)  # neither more nor fewer values
    greedy = written["greedy"]
    assert written["blockwise"] == greedy
    exact = [name for name in told if "distance:0" in name or name == "blockwise"]
    assert len(exact) == 2
    assert all(told[name]["differ_from_greedy"] == 0 for name in exact)
    (wide,) = [one for name, one in told.items() if "distance:80" in name]
    assert wide["mean_block"] > told["blockwise"]["mean_block"]

    files = sorted(folder.iterdir())
    columns = [lines / "test.2", *files[:2], lines / "test.8"]
    assert run("pictures", "grid", *columns, "-o", tmp_path / "grid.png", "--rows", 2, "--magnify", 2).code == 0
    with image.open(tmp_path / "grid.png") as grid:
        assert grid.size == (2 * (4 * 8 + 3 * 2), 2 * (2 * 8 + 2))

    sheet, key = tmp_path / "sheet.html", tmp_path / "key.json"
    other = next(file for file in files if file.read_text().splitlines() != greedy)
    mine = next(file for file in files if file.read_text().splitlines() == greedy)
    assert run("pictures", "compare", mine, other, "-o", sheet, "--key", key, "--seed", 1).code == 0
    assert str(mine) not in sheet.read_text()
    answers = json.loads(key.read_text())
    saved = {
        "sheet": answers["sheet"],
        "answers": {str(p["pair"]): "left" if p["left"] == str(mine) else "right" for p in answers["pairs"]},
    }
    (tmp_path / "answers.json").write_text(json.dumps(saved))
    votes = json.loads(run("pictures", "tally", key, tmp_path / "answers.json").out)
    assert (votes["for"], votes["percent"], votes["votes"]) == (str(mine), 100.0, len(answers["pairs"]))
    assert "expected" in run("pictures", "tally", tmp_path / "answers.json", key).error
    assert "found none" in run("pictures", "compare", mine, mine, "-o", sheet, "--key", key).error


def test_a_photograph_is_enlarged(faces: Path, run: Run, tmp_path: Path) -> None:
    """A wide picture with an alpha channel: its middle square, averaged, tile by tile, as lines would be."""
    image = pytest.importorskip("PIL.Image")
    given, made = tmp_path / "in.png", tmp_path / "out.png"
    values = np.random.default_rng(1).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    image.fromarray(values).convert("RGBA").save(given)
    how = ("generate", "--task", "super-resolution", given, made, "-m", faces, "--device", "cpu")
    ran = run(*how)
    assert ran.code == 0, ran.err
    assert "(12 x 8): its middle square of 8 pixels a side, averaged to 2 x 2, in 1 tile of 2 x 2" in ran.err
    with image.open(made) as opened:
        assert opened.size == (8, 8)
        alone = np.asarray(opened)
    small = values[:, 2:10].reshape(2, 4, 2, 4, 3).mean(axis=(1, 3))
    line = np.rint(small).astype(np.uint8).tobytes().hex()
    texts = run("translate", "-m", faces, "--device", "cpu", "--decoder", "greedy", stdin=f"{line}\n".encode()).out
    assert np.array_equal(picture_of(texts.strip()), alone)
    assert run(*how, "--size", 4).code == 0
    with image.open(made) as opened:
        assert opened.size == (16, 16)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("generate", "in.png", "out.jpg"), "expected a name that ends in .png, found '.jpg'"),
        (("generate", "in.png", "out.png"), "in.png: expected a picture, found no file"),
        (("generate", "key.txt", "out.png"), "expected a picture that Pillow can read"),
        (("generate", "in.png", "out.png", "--size", 3), "--size expects a multiple of 2"),
        (("generate", "in.png", "out.png", "--task", "translation"), "--task expects super-resolution"),
    ],
)
def test_what_is_no_picture_is_refused(
    faces: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("key.txt").write_text("no picture\n")
    assert told in run(*arguments, "-m", faces, "--device", "cpu").error


def test_pictures_go_to_standard_output(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    image = pytest.importorskip("PIL.Image")
    some, mine, other = tmp_path / "some.png", tmp_path / "mine", tmp_path / "other"
    mine.write_text("00" * 12 + "\n")
    other.write_text("ff" * 12 + "\n")
    image.new("RGB", (9, 7), "red").save(some)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    for command, begins in (
        (["generate", some, "-", "-m", faces], b"\x89PNG"),
        (["pictures", "grid", mine, other, "-o", "-"], b"\x89PNG"),
        (["pictures", "compare", mine, other, "-o", "-", "--key", "/dev/null"], b"<!doctype html>"),
    ):
        assert main([str(word) for word in command]) == 0
        assert capfdbinary.readouterr().out.startswith(begins)
    assert sorted(tmp_path.iterdir()) == before


def test_heads_do_not_shorten_what_a_model_can_write(tmp_path: Path) -> None:
    """They have no positions: once they were taken to have 1,024, and no decoder would write a picture."""
    translator = load(write_faces(tmp_path / "model", 3088), device="cpu")
    assert translator.longest == 3088
    _, limits = translator.decoder("blockwise", max_length=3072, min_length=3072)
    assert limits.max_length == 3072


def test_a_model_of_text_enlarges_nothing(model: Path, run: Run, tmp_path: Path) -> None:
    told = run("generate", tmp_path / "in.png", tmp_path / "out.png", "-m", model, "--device", "cpu").error
    assert "--model expects a model of pictures" in told


def test_recipes_learn_pictures_and_their_size(lines: Path, run: Run, tmp_path: Path) -> None:
    """Base, then heads on it: folders that write exactly as many values as pictures have."""
    recipes = Path(__file__).parents[2] / "recipes" / "super-resolution"
    data = [f"data.{split}_{side}={lines / ('train' if split == 'train' else 'test')}.{size}"
            for split in ("train", "valid") for side, size in (("source", 2), ("target", 8))]  # fmt: skip
    data += [
        f"data.tokenizer={tmp_path / 'pixels.model'}",
        f"data.cache={tmp_path / 'cache'}",
        "data.batches.tokens=600",
    ]
    quick = ["training.steps=2", "training.compile=none", "training.precision=fp32", "training.validate_every=2"]
    quick += ["training.checkpoint_every=1", "training.average=none", "training.schedule.warmup=1"]
    small = [
        "width=16",
        "feed_forward=16",
        "heads=2",
        "encoder_layers=1",
        "decoder_layers=1",
        "picture=8",
        "longest=224",
    ]
    for name, more in (
        ("base", [f"model.{one}" for one in small]),
        ("heads-frozen", [f"base={tmp_path / 'base'}", "model.k=3", "model.feed_forward=8"]),
        ("heads-fine-tuned", [f"base={tmp_path / 'base'}", "model.k=3", "model.feed_forward=8"]),
    ):
        given = [part for one in (*data, *quick, *more) for part in ("--set", one)]
        ran = run("train", recipes / f"{name}.yaml", "-o", tmp_path / name, "--device", "cpu", *given)
        assert ran.code == 0, ran.err
        assert ModelFolder(tmp_path / name / "model").config.limits == Limits(max_length=192, min_length=192)
    line = (lines / "test.2").read_text()
    both = [("base", "greedy"), ("heads-frozen", "blockwise"), ("heads-fine-tuned", "blockwise")]
    outputs = [run("translate", "-m", tmp_path / name, "--decoder", how, "--device", "cpu", stdin=line.encode()).out
               for name, how in both]  # fmt: skip
    assert {len(one) for text in outputs for one in text.splitlines()} == {2 * 192}
    assert outputs[0] == outputs[1]
