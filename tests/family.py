"""A tiny random family for tests: one folder with every decoder of the bundled models, one encoder for all of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import torch
from torch import nn

from longstride import model_folder
from longstride.model_folder import DecoderConfig, Part
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.draft_verify.model import Drafter, begin_as
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.systems.draft_verify.shortlist import Shortlist, ShortlistOptions
from longstride.systems.interleaved.model import Interleaving
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.lattice.counts import count, tables_of
from longstride.systems.lattice.model import Scorer, ScorerOptions
from longstride.systems.lattice.tables import CountOptions, Tables
from longstride.text.binarized import BinarizedCorpus
from longstride.text.tokenizer import Tokenizer
from tests.folders import LONGEST, words
from tests.models import tiny_model

DECODERS = {
    "greedy": {"model": "model"},
    "beam": {"model": "model"},
    "blockwise": {"model": "model", "heads": "heads"},
    "draft-verify": {"model": "model", "drafter": "drafter", "shortlist": "shortlist"},
    "draft": {"model": "model", "drafter": "drafter"},
    "interleaved": {"model": "interleaved", "interleaving": "interleaving"},
    "lattice": {"model": "scorer", "tables": "tables"},
}


def family_parts(tokenizer: Tokenizer, seed: int = 0) -> dict[str, Part]:
    """Parts by name; all that reuse `model` have its encoder and embeddings, bit for bit."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _parts(tokenizer, seed)


def _parts(tokenizer: Tokenizer, seed: int) -> dict[str, Part]:
    model = tiny_model(seed, torch.float32, vocabulary=tokenizer.size, longest=LONGEST)
    shape = {one.name: getattr(model.options, one.name) for one in fields(model.options)}
    heads = Heads(HeadsOptions(k=3, width=model.options.width, feed_forward=8, dropout=0.0))
    interleaved = tiny_model(seed + 1, torch.float32, vocabulary=tokenizer.size, longest=LONGEST)
    scorer = Scorer(ScorerOptions(**{**shape, "decoder_layers": 1, "order": 2}))
    drafter = Drafter(
        DrafterOptions(
            vocabulary=tokenizer.size,
            block=3,
            width=model.options.width,
            feed_forward=model.options.feed_forward,
            heads=model.options.heads,
            encoder="shared",
            verifier_width=model.options.width,
            decoder_layers=1,
            positions="sinusoidal",
            longest=LONGEST,
            dropout=0.0,
        )
    )
    begin_as(drafter, model)
    with torch.no_grad():  # as after some training
        for weight in drafter.decoder.parameters():
            weight.mul_(0.5)
    for other in (interleaved, scorer):
        _lend(model, other)
    tables, shortlist = tiny_tables(tokenizer), tiny_shortlist(tokenizer)
    return {
        "model": Part("transformer", model.options, model),
        "heads": Part("heads", heads.options, heads),
        "drafter": Part("drafter", drafter.options, drafter, "model"),
        "shortlist": Part("shortlist", shortlist.options, shortlist),
        "interleaved": Part("transformer", interleaved.options, interleaved, "model"),
        "interleaving": Part(
            "interleaving",
            InterleavingOptions(width=model.options.width),
            Interleaving(InterleavingOptions(width=model.options.width)),
        ),
        "scorer": Part("scorer", scorer.options, scorer, "model"),
        "tables": Part("tables", tables.options, tables),
    }


def tiny_tables(tokenizer: Tokenizer) -> Tables:
    """Every word is itself or its neighbour."""
    ids = list(range(5, tokenizer.size))
    pairs = [(ids[start : start + 4], ids[start + shift : start + shift + 4]) for start in range(8) for shift in (0, 1)]
    corpus = BinarizedCorpus.from_pairs(pairs)
    options = CountOptions(keep=4, reach=1, longest=16)
    links = torch.arange(4, dtype=torch.int32).repeat(len(pairs)).numpy()
    return tables_of(count(corpus, links, tokenizer.size, tokenizer.size, options), options, tokenizer.sha256)


def tiny_shortlist(tokenizer: Tokenizer) -> Shortlist:
    """Every word is itself; few of them make a list."""
    made = Shortlist(ShortlistOptions(tokenizer.size, tokenizer.size, each=1, usual=4, size=8))
    made.words.copy_(torch.arange(tokenizer.size)[:, None])
    made.usual.copy_(torch.arange(5, 9))
    return made


def write_family(path: Path, seed: int = 0, default: str = "blockwise") -> Path:
    tokenizer = words()
    decoders = {name: DecoderConfig(dict(parts)) for name, parts in DECODERS.items()}
    model_folder.write(
        path,
        family_parts(tokenizer, seed),
        decoders,
        default,
        tokenizer,
        provenance={"recipe": {"name": "tiny-family"}},
        dtype=torch.float16,
    )
    return path


def _lend(lender: nn.Module, taker: nn.Module) -> None:
    state = taker.state_dict()
    for name, weight in lender.state_dict().items():
        if name.startswith(("encoder.", "target_embedding.")):
            state[name].copy_(weight)
