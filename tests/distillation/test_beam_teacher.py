"""With a real model: cutting a corpus into shards and groups must not change what the teacher says."""

from __future__ import annotations

from pathlib import Path

import pytest

from longstride.contract import EOS, Decoder, Limits, Source
from longstride.distillation.decoding import Teacher
from longstride.distillation.distill import distill_lines
from longstride.distillation.options import DistillOptions
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from tests.models import random_source, tiny_model

RUNNER = EagerRunner(precision="fp64")
LIMITS = Limits(max_length=12, max_extra=3)


def decoders() -> list[Decoder]:
    models = [tiny_model(1, sharpness=1.0), tiny_model(2, sharpness=1.0)]
    return [Beam(models[:1], RUNNER, BeamOptions(3)), Beam(models, RUNNER, BeamOptions(2)), Greedy(models[0], RUNNER)]


@pytest.mark.parametrize("decoder", decoders(), ids=["beam", "ensemble", "greedy"])
def test_a_corpus_distils_to_what_each_line_decodes_to(decoder: Decoder, tmp_path: Path) -> None:
    source = random_source(25, 14, seed=3)
    sentences = [row[: length - 1] for row, length in zip(source.ids.tolist(), source.lengths.tolist(), strict=True)]
    teacher = Teacher(
        decoder,
        encode=lambda lines: [[int(word) for word in line.split()] for line in lines],
        decode=lambda rows: [" ".join(map(str, row)) for row in rows],
        hashes=("tiny",),
        vocabulary="numbers",
        limits=LIMITS,
    )
    lines = [" ".join(map(str, sentence)) for sentence in sentences]
    options = DistillOptions(shard_lines=11, group_lines=4, capacity=3, tokens=90, longest_source=64, keep_all=True)
    distill_lines(teacher, lines, tmp_path, options)
    found = (tmp_path / "train.tgt").read_text().split("\n")[:-1]
    for line, sentence, text in zip(lines, sentences, found, strict=True):
        alone = decoder.decode(Source.of([[*sentence, EOS]]), LIMITS).tokens[0] if line else []
        assert text == " ".join(map(str, alone))
