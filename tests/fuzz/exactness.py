"""`python -m tests.fuzz.exactness`: decoders that draft against those that do not, under limits drawn at random.

Lengths, banned and forced words, repetitions, prefixes, sampling by a seed, and for texts glossaries: whatever is asked
for, a draft must not change the output. Tiny random models in float64 or by the native runtime, whose numbers do not
depend on a step's width; texts by the bundled model and the native runtime.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from functools import cache
from itertools import count
from typing import Any

import torch

import longstride
from longstride.contract import EOS, START, Decoder, Limits, LongstrideError, Prefixes, Runner, Source
from longstride.contract.bundled import BUNDLED
from longstride.runtime.eager import EagerRunner
from longstride.runtime.native.runner import NativeRunner
from longstride.systems.autoregressive.decoder import Greedy, Sample, SampleOptions
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.translator import Translator
from tests.decoding.drafters import tiny_drafter
from tests.fuzz import odd_text
from tests.models import random_source, tiny_model
from tests.runtime.native.harness import missing
from tests.runtime.test_graph_exact import tiny_heads

VOCABULARY = 11
TEXT = (
    "the house is green and we walk home again tomorrow morning because rain never falls on Sunday in Berlin , however "
    "Mr President 25 % of 3.14 people don't know COVID-19 from http://a.b/c ; yes , yes , yes ! Why ?"
)
WORDS = TEXT.split()


def refuse(message: str) -> None:
    raise AssertionError(message)


@cache
def runner_of(kind: str) -> Runner:
    return EagerRunner("cpu", "fp64") if kind == "eager" else NativeRunner(kind, 1, tell=refuse)  # type: ignore[arg-type]


def drawn_limits(rng: random.Random, words: int) -> dict[str, Any]:
    """Most of them not given: what is combined is what differs."""
    longest = rng.choice((1, 2, 5, 12, 20))
    every: dict[str, Any] = {
        "max_ratio": rng.choice((0.0, 0.29, 1.0, 2.0)),
        "max_extra": rng.randrange(13),
        "min_length": rng.randint(0, longest),
        "banned": tuple(rng.sample(range(5, words), rng.choice((1, 2, words - 6)))),
        "forced_first": rng.choice((0, START, EOS, 7, words - 1)),
        "no_repeat_ngram": rng.randrange(5),
        "max_repeats": rng.randrange(4),
    }
    return {"max_length": longest, **{name: every[name] for name in every if rng.random() < 0.4}}


def drawn_sampling(rng: random.Random, words: int) -> dict[str, Any]:
    if rng.random() < 0.6:
        return {}
    asked: dict[str, Any] = {"temperature": rng.choice((0.01, 0.7, 1.0, 3.0)), "seed": rng.choice((0, 7, 2**63 - 1))}
    if rng.random() < 0.5:
        asked["top_k"] = rng.choice((1, 3, words, 10 * words))
    if rng.random() < 0.5:
        asked["top_p"] = rng.choice((0.2, 0.9, 1.0))
    return asked


def prefixed(source: Source, rng: random.Random) -> Source:
    begun = [[rng.randrange(5, VOCABULARY) for _ in range(rng.choice((0, 0, 1, 4)))] for _ in range(source.rows)]
    return Source(source.ids, source.lengths, source.numbers, prefixes=Prefixes.of(begun))


def drafting(rng: random.Random, seed: int, model: Any, runner: Runner, sampling: dict[str, Any]) -> Decoder:
    kind, k, tree = rng.choice(("draft-verify", "blockwise", "copy-verify")), rng.randint(1, 5), rng.randrange(13)
    asked = {"k": k, **sampling}
    if kind == "copy-verify":
        return CopyVerify(model, runner, CopyVerifyOptions(**asked, suffix=rng.randint(1, 3)))
    asked["tree"] = tree if rng.random() < 0.5 else 0
    if kind == "blockwise":
        heads = tiny_heads(seed, link=rng.choice((0, 3)), vocabulary=VOCABULARY).to(model.target_embedding.weight.dtype)
        return Blockwise(model, heads, runner, BlockwiseOptions(**asked))
    prefix = rng.choice(("causal", "full"))
    drafter = tiny_drafter(seed, model.target_embedding.weight.dtype, prefix=prefix, link=rng.choice((0, 3)), block=5)
    return DraftVerify(model, drafter, runner, DraftVerifyOptions(**asked))


def differs(seed: int) -> str:
    """What differs in the case of this number, in words; empty where nothing does."""
    rng = random.Random(seed)
    if rng.random() < 0.2 and not missing("fp32"):
        return differs_in_text(rng)
    kinds = ["eager", *(each for each in ("fp32", "int8") if not missing(each))]
    kind = rng.choice(kinds)
    runner = runner_of(kind)
    dtype = torch.float64 if kind == "eager" else torch.float32
    model = tiny_model(seed, dtype, sharpness=rng.choice((0.5, 2.0, 6.0)), encoder_layers=rng.choice((1, 2)))
    limits, sampling = Limits(**drawn_limits(rng, VOCABULARY)), drawn_sampling(rng, VOCABULARY)
    source = random_source(rng.randint(1, 6), rng.choice((1, 4, 9)), seed=seed)
    if rng.random() < 0.3:
        source = prefixed(source, rng)
    ours = drafting(rng, seed, model, runner, sampling)
    theirs = Sample(model, runner, SampleOptions(**sampling)) if sampling else Greedy(model, runner)
    capacity = rng.randint(1, source.rows)
    expected = theirs.decode(source, limits).tokens
    found = ours.decode(source, limits, capacity=capacity).tokens
    if found == expected:
        return ""
    row = next(row for row, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
    told = f"{kind}, {source.rows} rows, {capacity} at a time, prefixes {source.prefixes is not None}, {limits}"
    return f"{ours.signature} gives {found[row]} in row {row}, {theirs.signature} {expected[row]}; {told}"


# --- texts -----------------------------------------------------------------------------------------------------------


@cache
def bundled(precision: str) -> Translator:
    return longstride.load(BUNDLED, runtime="native", precision=precision, device="cpu")


def differs_in_text(rng: random.Random) -> str:
    translator = bundled(rng.choice(["fp32", *(["int8"] if not missing("int8") else [])]))
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 14))) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.3:
        lines[0] = rng.choice(odd_text.LINES)[:200].replace("\n", " ")
    words = translator.folder.parts["model"].options["vocabulary"]
    asked: dict[str, Any] = {**drawn_limits(rng, 16_000), **drawn_sampling(rng, 16_000)}
    if asked.get("forced_first", 0) >= words or "banned" in asked:
        asked |= {"banned": tuple(rng.sample(range(5, words), rng.choice((1, 50)))), "forced_first": None}
    glossary = [(word, f"{word[::-1]}isch") for word in set(rng.sample(WORDS, 3)) if word.isalpha()]
    given: dict[str, Any] = {"batch": rng.choice((1, 3)), "warn": lambda told: None, **asked}
    if rng.random() < 0.5 and glossary:
        given["glossary"] = glossary
    drafted: list[tuple[str, dict[str, Any]]] = [("draft-verify", {"tree": 0}), ("draft-verify", {"tree": 15})]
    kind, more = rng.choice([*drafted, ("blockwise", {}), ("copy-verify", {})])
    plain = "sample" if "temperature" in asked else "greedy"
    expected, found = (
        [one.text for one in translator.translate(lines, name, **options)]
        for name, options in ((plain, given), (kind, {**more, **given}))
    )
    if found == expected:
        return ""
    row = next(row for row, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
    told = f"{translator.runner.precision}, {lines}, {more}, {given}"
    return f"{kind} gives {found[row]!r} of {lines[row]!r}, {plain} {expected[row]!r}; {told}"


def main() -> int:
    """Hunt for so many minutes; exit 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="make fuzz-exactness", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on (default: 10)")
    parser.add_argument("--seed", type=int, help="the first case (default: a new one)")
    parser.add_argument("--case", type=int, help="this one alone")
    told = parser.parse_args()
    torch.set_num_threads(1)
    if told.case is not None:
        print(differs(told.case) or "nothing differs")
        return 0
    first = told.seed if told.seed is not None else random.SystemRandom().randrange(10**6)
    until, found, tried = time.monotonic() + told.minutes * 60, 0, 0
    for seed in count(first):
        if time.monotonic() > until:
            break
        tried += 1
        try:
            said = differs(seed)
        except LongstrideError as error:
            said = f"{type(error).__name__}: {error}"
        if said:
            found += 1
            print(f"case {seed}: {said}", flush=True)
    print(f"{tried} cases from {first} on, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
