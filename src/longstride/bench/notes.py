"""The sentences below tables: fields that speak of all records that a table shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from longstride.bench.record_parts import Against, Origin
from longstride.bench.view import View, computed


def shown(view: View) -> list[Any]:
    """The records that the table shows, each once."""
    return list({id(one.record): one.record for one in view.scope.found}.values())


def listed(words: Iterable[str]) -> str:
    """``2``, ``2 and 16``, ``2, 8 and 16``"""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def origin_note(origins: Sequence[Origin]) -> str:
    """Where the figures come from: each machine and its versions once, with all its threads, commits and dates."""
    alike: dict[tuple[str, ...], list[Origin]] = {}
    for origin in origins:
        machine = origin.machine
        alike.setdefault((machine.device, machine.cpu, machine.torch, origin.version), []).append(origin)
    return " ".join(map(_told_once, alike.values()))


def _told_once(origins: Sequence[Origin]) -> str:
    """Of origins that differ in threads, commits and dates alone."""
    machine, version = origins[0].machine, origins[0].version
    cpu = f" ({machine.cpu})" if machine.cpu and machine.cpu != machine.device else ""
    threads = listed(str(number) for number in sorted({origin.machine.threads for origin in origins}))
    in_order = sorted(origins, key=lambda origin: origin.date)
    changed = {True: " with uncommitted changes", False: ""}
    commits = list(dict.fromkeys((one.commit[:10] or "unknown") + changed[one.dirty] for one in in_order))
    dates = list(dict.fromkeys(origin.date[:10] for origin in in_order))
    told = f"{dates[0]} to {dates[-1]}" if len(dates) > 2 else listed(dates)
    return (
        f"{machine.device}{cpu}, {threads} CPU threads, PyTorch {machine.torch}, Longstride {version}, "
        f"commit{'s' if len(commits) > 1 else ''} {listed(commits)}, {told}."
    )


def score_names(records: Iterable[Any]) -> list[str]:
    """All scores that any record has, in the order of the first."""
    return list(dict.fromkeys(score.name for record in records for score in record.scores))


def difference_text(against: Sequence[Against], baseline: str) -> str | None:
    """``−0.31 (−0.52 to 0.00)``: from this baseline, if it was compared with."""
    found = next((one.comparison for one in against if one.baseline == baseline), None)
    if found is None:
        return None
    return f"{_signed(found.difference)} ({_signed(found.low)} to {_signed(found.high)})"


def _signed(value: float) -> str:
    text = f"{value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


@computed
def origins(view: View) -> str:
    """Machines, versions, commits and dates."""
    return origin_note([record.origin for record in shown(view)])


@computed
def signatures(view: View) -> str:
    """The signatures of the leading score."""
    return _signatures(view, score_names(shown(view))[:1])


@computed
def other_signatures(view: View) -> str:
    """The signatures of all other scores."""
    return _signatures(view, score_names(shown(view))[1:])


def _signatures(view: View, names: Sequence[str]) -> str:
    scores = [score for record in shown(view) for score in record.scores if score.name in names]
    return _sentences(dict.fromkeys(f"{score.name}: `{score.signature}`" for score in scores))


def _sentences(parts: Iterable[str]) -> str:
    told = ". ".join(parts)
    return told + ("." if told else "")


@computed
def contrastive_signatures(view: View) -> str:
    """How pairs were decided."""
    return _sentences(dict.fromkeys(f"`{record.signature}`" for record in shown(view)))


@computed
def decoders_told(view: View) -> str:
    """The signatures of all decoders at work."""
    found = ", ".join(dict.fromkeys(f"`{record.decoder}`" for record in shown(view) if record.decoder))
    return f"Decoder: {found}." if found else ""


@computed
def sentences_told(view: View) -> str:
    """How large the test set is."""
    sizes = sorted({record.workload.size for record in shown(view)})
    return f"{' or '.join(f'{size:,}' for size in sizes)} sentences."


@computed
def intervals(view: View) -> str:
    """What stands in brackets beside differences, where there are any."""
    compared = any(record.against for record in shown(view))
    return "In brackets: 95 % intervals over resampled sentences." if compared else ""


@computed
def precisions(view: View) -> str:
    """Of all that is shown."""
    return f"Precision: {', '.join(sorted({record.precision for record in shown(view)}))}."


@computed
def run_precisions(view: View) -> str:
    """The same in the order of the records."""
    return ", ".join(dict.fromkeys(record.precision for record in shown(view)))


@computed
def run_runtimes(view: View) -> str:
    """Of all that is shown, in the order of the records."""
    return ", ".join(dict.fromkeys(record.runtime for record in shown(view)))


@computed
def shared_settings(view: View) -> str:
    """Precision and runtime, where all decoders of a run share them."""
    values = [(name, {getattr(record, name) for record in shown(view)}) for name in ("precision", "runtime")]
    return " ".join(f"{name.capitalize()}: {found.pop()}." for name, found in values if len(found) == 1)


@computed
def left_out_of_names(view: View) -> str:
    """What the names of all models begin with."""
    prefix = view["run.shared_prefix"]
    return f"The models' names begin with `{prefix}`, left out here." if prefix else ""


@computed
def how_timed(view: View) -> str:
    """What was decoded, and how its time was taken."""
    size = view["batch_size"]
    order = "one at a time, in order" if view["one_by_one"] else f"{size} at a time, sorted by length"
    if view["batch_kind"] == "open":
        order += ", others taking the places of those that are done"
    return (
        f"{view['test_set']}: {view['workload.size']:,} sentences, {order}; {_passes(_most_passes(view))}, candidates "
        "taking turns; from ids on the host to ids on the host."
    )


@computed
def other_passes(view: View) -> str:
    """Of decoders that were timed less often than the others."""
    counts = {record.candidate: len(record.latencies_us) for record in shown(view) if record.sentences is None}
    return " ".join(f"{name}: {_passes(count)}." for name, count in counts.items() if count != _most_passes(view))


@computed
def unstable_told(view: View) -> str:
    """Of decoders whose outputs differed between passes."""
    unstable = [record for record in shown(view) if record.unstable]
    return " ".join(f"{one.candidate}: {one.unstable} outputs differed between passes." for one in unstable)


def _most_passes(view: View) -> int:
    return max(len(record.latencies_us) for record in shown(view))


def _passes(count: int) -> str:
    return f"{count} {'pass' if count == 1 else 'passes'}"


@computed
def samples(view: View) -> str:
    """For all that were measured alike on a sample, which and how large it was."""
    rows = [
        (one.candidate, None if one.sentences is None else len(one.sentences), len(getattr(one, "latencies_us", ())))
        for one in shown(view)
    ]
    return " ".join(sample_notes(rows))


def sample_notes(rows: Sequence[tuple[str, int | None, int]]) -> list[str]:
    """From names, sizes of samples (None: everything) and passes, a note for all that were measured alike."""
    alike: dict[tuple[int, int], list[str]] = {}
    for name, sentences, passes in rows:
        if sentences is not None:
            alike.setdefault((sentences, passes), []).append(name)
    notes = []
    for (sentences, passes), names in alike.items():
        who = "all" if 1 < len(names) == len(rows) else ", ".join(names)
        timed = f", {_passes(passes)}" if passes else ""
        them = "them" if len(names) > 1 else "it"
        notes.append(f"† {who}: on a fixed sample of {sentences:,} sentences{timed}; ratios to {them} are over those.")
    return notes


@computed
def warm_up_told(view: View) -> str:
    """What had to be waited for before the clock ran."""
    prepared = [record.preparation for record in shown(view) if record.preparation]
    if not prepared:
        return ""
    told = f"Warm-up: {max(record.warmup for record in shown(view)):,} sentences before the clock ran."
    if any(one.graphs is not None for one in prepared):
        told += " Capturing, graphs and what they hold: what it added, since candidates of one model share."
    return told


@computed
def on_shared_device(view: View) -> str:
    """A mark where other runs shared the device, so that its times are not those of the run alone."""
    return " ‡" if view.record.notes.get("gpu") else ""


@computed
def shared_device_note(view: View) -> str:
    """What the mark means, where there is one."""
    marked = any(on_shared_device(one) for one in view.scope.found)
    return "‡ beside other runs on the same GPU: alone it is faster." if marked else ""


@computed
def bandwidths(view: View) -> str:
    """How fast the devices copied."""
    speeds = sorted({round(record.bandwidth / 1e9) for record in shown(view) if record.bandwidth})
    return " or ".join(f"{speed:,} GB/s" for speed in speeds)


@computed
def shared_by_profiles(view: View) -> str:
    """What all profiles of a table share."""
    told = {name: {one[name.replace(" ", "_")] for one in view.scope.found} for name in PROFILE_SETTINGS}
    shared = [f"{name} {values.pop()}" for name, values in told.items() if len(values) == 1]
    return f"All: {', '.join(shared)}." if shared else ""


PROFILE_SETTINGS = ("model", "runtime", "precision", "batch size")


@computed
def beams_told(view: View) -> str:
    """BLEU of each beam search that lattices are compared with, in brackets."""
    found = beams(view)
    told = "; ".join(f"{' '.join(filter(None, key))}: {value:.2f}" for key, value in sorted(found.items()))
    return f" ({told})" if told else ""


def beams(view: View) -> dict[tuple[str, str], float]:
    """BLEU of autoregressive beam search in the same group, by size and data."""
    found = [one for one in view.scope.group if one["decoder"] == "beam" and one["size"]]
    return {(one["size"], one["data"]): one["bleu"] for one in found if one["bleu"] is not None}


@computed
def chosen_setting(view: View) -> str:
    """What a development set says of a model: the best setting, and the fastest that loses nothing against greedy."""
    model = view["model"]
    mine = [one for one in view.scope.found if one["model"] == model]
    greedy = next((one for one in view.scope.group if one.meets({"model": model, "decoder": "greedy"})), None)
    best = max(mine, key=lambda one: (one["bleu"] or 0.0, one["tokens"] or 0.0))
    text = f"{model}: the best BLEU is that of {best['accept']}"
    if greedy is None or greedy["bleu"] is None:
        return text + "."
    lossless = [one for one in mine if (one["bleu"] or 0.0) >= greedy["bleu"]]
    fastest = max(lossless, key=lambda one: one["tokens"] or 0.0)["accept"] if lossless else "none"
    return f"{text}; greedy has {greedy['bleu']:.2f}, and the fastest that has no less is {fastest}."
