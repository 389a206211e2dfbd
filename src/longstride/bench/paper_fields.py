"""Fields that the papers' own tables are laid out by: options of their decoders, and makes of their models."""

from __future__ import annotations

import math
from itertools import accumulate

from longstride.bench.comparison import bench_runs, speed_up
from longstride.bench.fields import minus
from longstride.bench.notes import beams
from longstride.bench.records import Training
from longstride.bench.view import FIELDS, View, computed

EXACT = "exact"
LINKED = "linked"
SIZES = {512: "base", 256: "small"}


# Draft and verify: options of decoders, and how their models were trained.
FIELDS |= {
    "k": lambda view: int(view["option"].get("k", "0")),
    "accept": lambda view: view["option"].get("accept", ""),
    "min_block": lambda view: int(view["option"].get("min_block", "1")),
    "exact": lambda view: view["accept"] == EXACT and view["min_block"] == 1,
    "inexact": lambda view: view["accept"] != EXACT,
    "plain": lambda view: view["option"].get("adaptive", "false") == "false",
    "chain": lambda view: view["option"].get("tree", "0") == "0",
    "pictures": lambda view: "PSNR" in view["score"],
    "acceptance": lambda view: view["accept"] + (f", at least {view['min_block']}" if view["min_block"] > 1 else ""),
    "top": lambda view: _top_and_gap(view)[0],
    "gap": lambda view: _top_and_gap(view)[1],
    "trained_block": lambda view: int(view["part.drafter.block"] or 0),
}
USUAL = {"dedup": "0", "end": "any-direction", "strength": "0.6"}
"""How interleaved decoders search where nothing is tried."""

_SHAPE = ("encoder", "encoder_layers", "decoder_layers", "width")
FIELDS["drafter_shape"] = lambda view: tuple(view[f"part.drafter.{name}"] for name in _SHAPE)


def _top_and_gap(view: View) -> tuple[int | None, float | None]:
    """B and T of ``top:B,gap:T``."""
    parts = dict(part.partition(":")[::2] for part in view["accept"].split(","))
    return (int(parts["top"]), float(parts["gap"])) if {"top", "gap"} == set(parts) else (None, None)


@computed
def method(view: View) -> str | None:
    """The row of the paper's Table 1 that this may be."""
    decoder = view["decoder"]
    if decoder in ("greedy", "beam"):
        return str(decoder)
    if decoder not in ("draft", "draft-verify") or view["k"] != view["trained_block"] or view["min_block"] != 1:
        return None
    return "draft" if decoder == "draft" else str(view["accept"])


@computed
def method_told(view: View) -> str:
    """The same in words."""
    decoder, k, accept = view["decoder"], view["k"], view["accept"]
    if decoder == "greedy":
        return "verifier, greedy"
    if decoder == "beam":
        return f"verifier, beam {view['option'].get('width', '')}".rstrip()
    if decoder == "draft":
        return f"drafter alone (k={k})"
    return f"GAD (k={k})" if accept == EXACT else f"GAD++ (k={k}, {accept})"


@computed
def paper_column(view: View) -> str | None:
    """Which column of the blockwise paper's Table 1 this is; none where base and heads learnt from different data."""
    notes = view.record.notes
    columns = {"original": ("Fine Tuning", "Regular"), "distilled": ("Both", "Distillation")}
    data = notes.get("data") if notes.get("data") == notes.get("base_data") else None
    return columns[data][bool(notes.get("frozen"))] if data in columns else None


@computed
def training_order(view: View) -> tuple[bool, bool, bool]:
    """The paper's order of columns: frozen before fine-tuned, original data before distilled."""
    notes = view.record.notes
    return not notes.get("frozen"), notes.get("data") != "original", notes.get("base_data") != "original"


@computed
def training(view: View) -> str:
    """``frozen; base: distilled, heads: distilled``, or the name where that is not known or would name two."""
    told = {one["model"]: _training(one) for one in view.scope.found}
    mine = told[view["model"]]
    return mine if mine is not None and list(told.values()).count(mine) == 1 else str(view["model"])


def _training(view: View) -> str | None:
    notes = view.record.notes
    if "frozen" not in notes or "base_data" not in notes:
        return None
    how = "frozen" if notes["frozen"] else "fine-tuned"
    return f"{how}; base: {notes['base_data']}, heads: {notes.get('data', '')}"


# Models that write several words per step, and autoregressive ones as h = c = 1.
FIELDS |= {
    "interleaving": lambda view: bool(view["part.interleaving"]),
    "h": lambda view: int(view["part.interleaving.h"] or 1),
    "c": lambda view: int(view["part.interleaving.c"] or 1),
    "beam": lambda view: 1 if view["decoder"] == "greedy" else int(view["option"].get("width", "1")),
    "dedup": lambda view: int(view["option"].get("dedup", "0")),
    "unchanged": lambda view: not view["ablation"] and USUAL.items() <= (USUAL | view["option"]).items(),
    "linked": lambda view: view["ablation"] == LINKED,
    "published": lambda view: view["c"] == 1 if view["h"] == 1 else view["c"] <= 2,
    "directions": lambda view: "both directions" if view["h"] == 2 else "left to right",
    "layers": lambda view: int(view["part.model.decoder_layers"] or 0),
    "full_depth": lambda view: view["layers"] == _deepest(view),
    "size_capital": lambda view: view["size"].capitalize(),
    "size_rank": lambda view: (*SIZES.values(), view["size"]).index(view["size"]),
    "first_variant": lambda view: view.scope.rows[0][-1]["variant"],
}


@computed
def factorised(view: View) -> bool:
    """Whether it is autoregressive or interleaves, by a decoder of its own kind."""
    own_kind = (view["decoder"] == "interleaved") == view["interleaving"]
    return view["decoder"] in ("greedy", "beam", "interleaved") and (own_kind or view["h"] == 1)


@computed
def architecture(view: View) -> str:
    """As the paper calls a model of h directions and c words of each per step."""
    h, c = view["h"], view["c"]
    if h == 1:
        return "Transformer" if c == 1 else "vanilla SA"
    return ("IBDecoder" if h == 2 else "IMDecoder") + (" + SA" if c > 1 else "")


@computed
def ablation(view: View) -> str:
    """What differs from the paper's own model, if anything does."""
    found = view["part.interleaving"] or {}
    told = {
        "vanilla mask": found.get("mask") == "vanilla",
        "vanilla positions": found.get("signal") == "vanilla",
        "middle to side": found.get("order") == "middle-to-side",
        "independent directions": found.get("independent"),
        "one word per step": found.get("autoregressive"),
        LINKED: found.get("link"),
    }
    return ", ".join(name for name, yes in told.items() if yes)


@computed
def variant(view: View) -> str:
    """As the paper's Table 2 has it."""
    told = ", ".join(filter(None, (view["architecture"], view["ablation"])))
    return f"{told}, c={view['c']}" if view["c"] > 1 else told


@computed
def size(view: View) -> str:
    """``base``, ``small``, or the width; nothing where the record does not tell."""
    width = view["part.model.width"]
    return SIZES.get(width, f"width {width}") if isinstance(width, int) else ""


def _deepest(view: View) -> int:
    return max(int(one["layers"]) for one in view.scope.found if one["size"] == view["size"])


@computed
def depth(view: View) -> str | None:
    """``full``, or ``two`` layers of a shallower decoder."""
    return "full" if view["full_depth"] else "two" if view["layers"] == 2 else None


@computed
def minus_first(view: View) -> float | None:
    """BLEU less that of the first row; none in the first row."""
    first = view.scope.rows[0][-1]
    return None if view.record is first.record else minus(view["bleu"], first["bleu"])


@computed
def minus_unlinked(view: View) -> float | None:
    """BLEU less that of the same model without links."""
    return minus(view["bleu"], next(one for one in reversed(view["row"]) if not one["linked"])["bleu"])


@computed
def words_per_step(view: View) -> int | None:
    """Of one or both directions; none where something else is changed too."""
    if view["ablation"] not in ("", "one word per step") or view["h"] > 2:
        return None
    return 1 if view["ablation"] else int(view["h"] * view["c"])


@computed
def one_word_perplexity(view: View) -> float | None:
    """Of the model with one word per step, which one with two may have been compared with."""
    name = "score.perplexity" if view["words_per_step"] == 1 else "mutual_information.base_perplexity"
    found: float | None = view[name]
    return found


@computed
def information(view: View) -> float | None:
    """Difference of the log-perplexities with two words per step and with one, of a row of the table."""
    ones = [one["one_word_perplexity"] for one in sorted(view["row"], key=lambda one: -one["words_per_step"])]
    one = next((value for value in reversed(ones) if value), None)
    two = view["score.perplexity"]
    return math.log(two / one) if one and two else None


@computed
def training_speed(view: View) -> str | None:
    """Once per model; over the autoregressive model of the same size, data and kind of measurement."""
    if view["beam"] != 4:
        return None
    wanted = {"size": view["size"], "h": 1, "c": 1, "beam": 4, "distilled": view["distilled"]}
    baseline = next((one for one in reversed(view.scope.found) if one.meets(wanted)), None)
    for alone in (True, False):
        ours, theirs = (_trained_at(one, alone) for one in (view, baseline))
        if ours and theirs:
            return f"{ours / theirs:.2f}×" + ("" if alone else " *")
    return None


FIELDS["trained_beside_others"] = lambda view: "*" in (training_speed(view) or "")


def _trained_at(view: View | None, alone: bool) -> float | None:
    """Target tokens a second: of a short run alone on the device, or of the training itself."""
    if view is None:
        return None
    name, digest = f"en-de-speed-{view['model'].removeprefix('en-de-')}", view.record.model.hash
    runs = [record for record in view.scope.records if isinstance(record, Training)]
    mine = [one for one in runs if (one.name == name if alone else one.model_hash == digest != "")]
    return mine[-1].tokens_per_second if mine else None


# Lattices, and the curves about them.
FIELDS |= {
    "candidates": lambda view: int(view["option"].get("candidates", "0")),
    "window": lambda view: int(view["option"].get("length_window", "0")),
    "minus_beam": lambda view: minus(view["bleu"], view["beam_bleu"]),
    "percent": lambda view: 100 * view["value"],
    "curve_sum": lambda view: sum(view["curve"].values),
    "share_of_sum": lambda view: 100 * view["value"] / max(1.0, view["curve_sum"]),
    "rank_heading": lambda view: "first" if view["rank"] == 1 else f"first {view['rank']}",
    "ms_together": lambda view: sum(one["ms"] for one in view["row"]),
}


@computed
def usual_lattice(view: View) -> bool:
    """Bigrams of the tables' words, exact search, whole vocabulary: what the paper does."""
    wanted = {"order": "2", "construction": "tables", "normalise": "vocabulary", "n_best": "1", "dedup": "0"}
    return all(view["option"].get(name, value) == value for name, value in wanted.items())


@computed
def beam_bleu(view: View) -> float | None:
    """Of beam search by the model of this size and data; where there is none, by any of this size."""
    found = beams(view)
    some = [value for (other, _), value in sorted(found.items()) if other == view["size"]]
    return found.get((view["size"], view["data"]), some[0] if some else None)


@computed
def speed_up_over_beam(view: View) -> float | None:
    """Over beam search, from the latest run at batch size 1 that has both."""
    found = None
    for run in bench_runs(view.scope.records):
        rival = next((one for one in run.baselines if one.decoder.startswith("beam|")), None)
        closed = run.batch_size == 1 and run.batch_kind == "closed"
        for one in run.records if closed and rival is not None else ():
            mine = View(one, view.scope)
            if mine["decoder"] == "lattice" and mine["candidates"] == 64 and one.model.hash == view.record.model.hash:
                ratio = speed_up(one, rival) if rival and one.model.hash else None
                found = ratio.value if ratio else found
    return found


@computed
def construction(view: View) -> str:
    """Tables and shared vocabularies are the same whatever model they lie beside; other words are a model's."""
    name = str(view["curve"].name)
    return name if name in ("tables", "shared") else f"{name} ({view['model']})"


@computed
def curve_told(view: View) -> str:
    """The curve's name, and its model's where there are several."""
    several = len({one["model"] for one in view.scope.found}) > 1
    return f"{view['model']}, {view['curve'].name}" if several else str(view["curve"].name)


@computed
def share_up_to_rank(view: View) -> float | None:
    """Of the whole curve, in percent."""
    sums = list(accumulate(view["curve"].values))
    return 100 * sums[view["rank"] - 1] / sums[-1] if view["rank"] <= len(sums) else None
