"""longstride bench: decoders side by side on one test set, speed never without quality, every reading kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longstride.cli import options as shared
from longstride.cli.console import Stages, err, out, say, warn
from longstride.cli.provenance import data_name, origin_of
from longstride.cli.streams import input_file, is_standard, record_file
from longstride.cli.test_sets import Material, in_ids, read_material
from longstride.contract import InputError, OptionError
from longstride.contract.bundled import BUNDLED
from longstride.contract.options import parse

if TYPE_CHECKING:
    from longstride.bench.workload import Workload
    from longstride.translator import Translator


def bench(
    source: shared.Source,
    reference: shared.References,
    output: Annotated[Path, typer.Option("-o", "--output", help="Append the records to this file (JSON lines).")],
    model: Annotated[
        list[str] | None,
        typer.Option("-m", "--model", help=f"Model folder; several are measured side by side (default: {BUNDLED})."),
    ] = None,
    task: shared.Task = "translation",
    decoders: Annotated[
        str | None,
        typer.Option(
            help="Which decoders, separated by commas, each with options of its own if need be: "
            "greedy,beam:width=4;n_best=2 (default: all that each model has); FOLDER/greedy for one of several models."
        ),
    ] = None,
    set: shared.Set = None,
    drafter: shared.DrafterFolder = None,
    batch_sizes: Annotated[
        str, typer.Option(help="Sentences decoded together, e.g. 1,8,32; 1 is latency, more is throughput.")
    ] = "1",
    open_batches: Annotated[
        bool,
        typer.Option(
            "--open/--closed",
            help="Sentences take the places of those that are done, as in translate; or batches are decoded to their "
            "end.",
        ),
    ] = False,
    passes: Annotated[int, typer.Option(min=1, max=10**6, help="How often the whole test set is timed.")] = 3,
    sample: Annotated[
        list[str] | None,
        typer.Option(
            help="Decode only a fixed sample of so many sentences: a number for all, or decoder=number for one that is "
            "slow; may be given several times."
        ),
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="The first model's greedy and beam search take part, and speed-ups are over them.")
    ] = True,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            help="Take this member of the line-up for a baseline instead, as --decoders or tables name it; "
            "may be given several times."
        ),
    ] = None,
    same_as: Annotated[
        str | None,
        typer.Option(
            help="Count the outputs that differ from this member's (default: greedy, where there is one model)."
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            help="Other libraries on the first model's weights, separated by commas: hf, hf-compiled, ctranslate2; "
            "those that are slow decode a sample of 200 sentences once."
        ),
    ] = None,
    assistant: shared.Assistant = None,
    warmup: Annotated[
        Path | None, typer.Option(help="Text to warm up on, besides sentences of the test set with two words swapped.")
    ] = None,
    runtime: shared.Runtime = "auto",
    precision: shared.Precision = "auto",
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    experiment: shared.Experiment = None,
    workload: shared.Workload = None,
) -> None:
    """Measure decoders side by side on one test set.

    All take turns sentence by sentence, so that noise of the machine falls on all alike. --set gives options to every
    decoder. Records are appended when a batch size is wholly measured; longstride report makes tables and plots of
    them.
    """
    from longstride.bench.comparison import BenchRun
    from longstride.bench.measure import Protocol, measure
    from longstride.bench.record_files import appended
    from longstride.bench.sources import run_table
    from longstride.cli.lineup import greedy_among, line_up, member_name, read_entries, read_samples
    from longstride.cli.peers import peer_candidates, read_peers

    models = model or [BUNDLED]
    sizes = parse(Protocol, {"batch_sizes": batch_sizes, "passes": passes}, "bench")
    entries = read_entries(decoders, models=True) if decoders is not None else []
    samples = read_samples(sample or [])
    shown_at = err if is_standard(output) else out  # records are not to be mixed with tables
    file = record_file(output)
    source, warmup = input_file(source), input_file(warmup)
    material = read_material(task, source, [input_file(one) for one in reference])
    if drafter is not None and len(models) > 1:
        raise OptionError(f"--drafter expects one --model that it drafts for, found {len(models)}.")
    translators = [shared.open_model(one, runtime, precision, device, drafter, threads) for one in models]
    _one_vocabulary(translators)
    others = read_peers(peers, translators[0], assistant)
    wanted = [member_name(name, translators) for name in baseline or ()]
    # Where a peer alone is to be the baseline, none of ours is one.
    named = [name for name in wanted if name not in {one.name for one in others}] if wanted else None
    candidates = line_up(translators, entries, shared.settings(set), samples, baselines, named, drafter)
    candidates += peer_candidates(others, translators[0], candidates, samples, wanted, assistant)
    _check_samples(samples, [one.decoder.name for one in candidates])
    if same_as is None and len(translators) == 1:
        same_as = greedy_among([(one.name, one.decoder) for one in candidates])
    elif same_as is not None:
        same_as = member_name(same_as, translators)
    protocol = Protocol(sizes.passes, sizes.batch_sizes, same_as, "open" if open_batches else "closed")

    test_set = _test_set(translators, material, workload or data_name(source), str(source), warmup)
    origin = origin_of(experiment, translators[0])
    with Stages() as shown:
        for records in measure(test_set, candidates, protocol, origin, shown.to):
            shown.close()
            with appended(file, records):
                shown_at.print(f"batch size {records[0].batch_size}{', open' if open_batches else ''}", markup=False)
                shown_at.print(run_table("latency", BenchRun(tuple(records))) or "", markup=False)
    shared.say_report(*translators, runtime=runtime)
    say(f"Records appended to {output}.")


def _one_vocabulary(translators: Sequence[Translator]) -> None:
    first = translators[0]
    for other in translators[1:]:
        if (other.source_tokenizer.sha256, other.target_tokenizer.sha256) != (
            first.source_tokenizer.sha256,
            first.target_tokenizer.sha256,
        ):
            raise OptionError(
                f"--model expects models of one tokenizer, found another in {other.folder.path} than in "
                f"{first.folder.path}."
            )


def _check_samples(samples: dict[str, int], present: Sequence[str]) -> None:
    for name in samples:
        if name and name not in present:
            raise OptionError(f"--sample expects a decoder of the line-up ({', '.join(present)}), found {name!r}.")


def _test_set(
    translators: Sequence[Translator],
    material: Material,
    name: str,
    source: str,
    warmup: Path | None,
) -> Workload:
    """The pairs as ids, as the model that can read least has to cut them; empty lines are nothing to measure."""
    from longstride.text.corpus import read_lines

    translator = min(translators, key=lambda one: one.longest)
    lines = material.sources
    sources = translator.encode(lines, warn=lambda said: warn(f"{source}, {said}"))
    full = [place for place, line in enumerate(lines) if line.strip() and len(sources[place]) > 1]
    if not full:
        raise InputError(f"{source}: expected at least one sentence to translate, found none.")
    if len(full) < len(lines):
        say(f"{len(lines) - len(full)} empty source lines are left out.")
    warmups = list(read_lines(warmup)) if warmup else []
    return in_ids(
        translator,
        name,
        [sources[place] for place in full],
        [material.all_references[place] for place in full],
        translator.encode([line for line in warmups if line.strip()], warn=lambda said: None),
        material.metrics_of(full),
        material.whole,
    )
