"""longstride shortlist: count which words go with which, from pairs of sources and outputs, into a model's folder."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from longstride.cli.console import Stages, commit, say
from longstride.cli.options import Device, OwnModel, Source, model_path, own_folder
from longstride.cli.streams import input_file
from longstride.contract import ModelFolderError


def shortlist(
    model: OwnModel,
    source: Source,
    target: Annotated[
        Path,
        typer.Option("-t", "--target", help="What the model writes, or learnt to write, one line per source line."),
    ],
    each: Annotated[int, typer.Option(min=1, max=1024, help="Words for each piece of a source.")] = 32,
    device: Device = "auto",
) -> None:
    """Give a model with a drafter a shortlist, so that processors draft the same output sooner.

    Pairs are aligned, and what goes with each piece of a source is counted: `longstride train` and `adapt` do so by
    themselves. A shortlist that the folder has is replaced; no other part changes, and neither does any output.
    """
    from longstride import model_folder
    from longstride.model_folder import DecoderConfig, Part
    from longstride.registry import DECODERS
    from longstride.runtime.choosing import check_device
    from longstride.systems.draft_verify.shortlist_counts import count
    from longstride.text.binarized import binarize
    from longstride.text.filtering import LengthFilter

    folder = own_folder(model_path(model), "a shortlist")
    takers = [name for name in folder.decoders if "shortlist" in DECODERS[name].optional]
    if not takers:
        raise ModelFolderError(
            f"{folder.path}: expected a model with a drafter, which a shortlist is for, found the decoders "
            f"{', '.join(folder.decoders)}; `longstride adapt` gives it one."
        )
    files, place = (input_file(source), input_file(target)), check_device(device)
    of_source, of_target = folder.tokenizers()
    with Stages() as shown, tempfile.TemporaryDirectory() as work:
        pairs = binarize(
            *files,
            of_source,
            Path(work) / "pairs",
            LengthFilter(max_tokens=128),
            target_tokenizer=of_target,
            progress=lambda done: shown.to("tokenizing", done, 0),
        )
        aligning = partial(shown.to, "aligning")
        made = count(pairs, of_source, of_target, each, folder.special, device=place, progress=aligning)
        assert pairs.manifest is not None
        provenance = {
            "pairs": len(pairs),
            "source_sha256": pairs.manifest.source_sha256,
            "target_sha256": pairs.manifest.target_sha256,
            "commit": commit()[0],
        }
    part, roles = Part("shortlist", made.options, made), DecoderConfig({"shortlist": "shortlist"})
    model_folder.drop_in(folder.path, "shortlist", part, dict.fromkeys(takers, roles), provenance)
    say(f"A shortlist of {provenance['pairs']:,} pairs: {folder.path}")
