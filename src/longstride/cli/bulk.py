"""longstride bulk: a large file in shards, by this process or by the machines of a Ray cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli import options as shared
from longstride.cli.console import Bar, say, warn
from longstride.cli.failures import keeping
from longstride.cli.streams import is_standard, keep_what_is_read
from longstride.contract import OptionError
from longstride.contract.bundled import BUNDLED
from longstride.text.corpus import WHATEVER
from longstride.text.files import check_writable

if TYPE_CHECKING:
    from longstride.bulk.cluster import Cluster
    from longstride.translator import Translator

RECORDS = 4096
"""The most records of a shard, by default."""


def bulk(
    input: Annotated[Path, typer.Argument(help="File to translate: text, JSON lines (.jsonl) or Parquet.")],
    output: Annotated[Path, typer.Argument(help="File of the same kind to write, whole or not at all.")],
    model: shared.Model = BUNDLED,
    format: Annotated[
        str, typer.Option(help="What INPUT is: text, jsonl or parquet (default: auto, as its name ends).")
    ] = "auto",
    field: Annotated[str, typer.Option(help="Field (JSON lines) or column (Parquet) with the text.")] = "text",
    into: Annotated[str, typer.Option(help="Field or column to add, with its translation.")] = "translation",
    decoder: shared.DecoderName = None,
    set: shared.Set = None,
    drafter: shared.DrafterFolder = None,
    whole: shared.Whole = None,
    source_lang: shared.SourceLang = None,
    target_lang: shared.TargetLang = None,
    runtime: shared.Runtime = "auto",
    precision: shared.Precision = "auto",
    device: shared.Device = "auto",
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=10**6, help="Threads of a worker (default: all cores, on a cluster 1)."),
    ] = None,
    batch: shared.AutoBatch = None,
    shard: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**9,
            help="Records of a shard (default: some seconds of work, 4096 at most; on a cluster 4096).",
        ),
    ] = None,
    tries: Annotated[int, typer.Option(min=1, max=1000, help="Times that a shard that fails is tried.")] = 3,
    cluster: Annotated[
        str | None,
        typer.Option(help="Let a Ray cluster do it: its address, auto, or local (processes of this machine)."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=10**5, help="Workers of the cluster (default: all that it has room for)."),
    ] = None,
) -> None:
    """Translate a large file in shards, on one machine or many.

    Interrupted, it says what is kept, and the same command goes on with the shards that are left. Order and number of
    records are the input's.
    On a cluster, INPUT, the folder of OUTPUT and the model lie where every machine sees them under the same path.
    """
    options = shared.settings(set)
    shared.check_asked(model, drafter, runtime=runtime, precision=precision)
    from longstride.bulk.job import Job, ShardResult, Work
    from longstride.bulk.records import records_of
    from longstride.bulk.running import here, run
    from longstride.model_folder import ModelFolder

    for name, path in (("INPUT", input), ("OUTPUT", output)):
        if is_standard(path):
            raise OptionError(
                f"{name} expects a file, of which parts are read and written, found {str(path)!r}; "
                f"`longstride translate` reads standard input and writes standard output."
            )
    keep_what_is_read("OUTPUT", output, input)
    check_writable(output)
    records = records_of(input, output, format, field, into)
    way = _cluster(cluster, workers, threads, device)
    model, drafter = _everywhere(model), _everywhere(drafter) if drafter is not None else None
    opened = partial(_opened, model, drafter, source_lang, target_lang)
    if way is None:
        translator = opened(runtime, precision, device, threads)
        work = Work(lambda: translator, decoder, options, batch, whole)
    else:  # what cannot work is refused here, though this machine may have no device of the kind
        translator = opened("eager", "fp32", "cpu", None)
        work = Work(partial(opened, runtime, precision, device, threads or 1), decoder, options, batch, whole)
    chosen, limits = translator.decoder(decoder, **options)
    portion = translator.portion if shard is None and way is None else WHATEVER
    job = Job.of(input, output, records, shard or RECORDS, portion)
    made_by: dict[str, Any] = {
        "model": translator.folder.sha256,
        "drafter": ModelFolder(shared.model_path(drafter)).sha256 if drafter is not None else None,
        "decoder": chosen.signature,
        "limits": vars(limits),
        "languages": [source_lang, target_lang],
        "runtime": runtime,
        "precision": precision,
        "batch": batch,
        "whole": whole,
        "format": [type(records).__name__, field, into],
    }
    total, done = sum(one.records for one in job.shards), 0

    def kept() -> str:
        return f"kept {done:,} of {total:,} records; the same command continues"

    with keeping(kept), job.begun(made_by), Bar("translating", total) as shown:
        done = total - sum(one.records for one in job.left())
        if done:
            say(f"Going on with {len(job.left()):,} of {len(job.shards):,} shards.")

        def tell(told: ShardResult) -> None:
            nonlocal done
            done += told.records
            shown.to(done)
            for line in told.warnings:
                warn(line)

        run(job, work, way or here, tries, tell)
        job.finish()
    if way is None:  # else each worker has its own
        many = translator.batch if batch is None else None
        sentences = max((one.records for one in job.shards), default=0)
        ran = translator.decoder_for(sentences, decoder, batch=batch, **options)[0].runs
        shared.say_report(translator, runtime=runtime, precision=precision, batch=many, decoders=ran)


def _cluster(address: str | None, workers: int | None, threads: int | None, device: str) -> Cluster | None:
    if address is None:
        if workers is not None:
            raise OptionError("--workers expects --cluster beside it, found none.")
        return None
    from longstride.bulk.cluster import Cluster, check_packages

    check_packages()
    if device not in ("auto", "cpu", "cuda"):
        raise OptionError(
            f"--device expects auto, cpu or cuda with --cluster, which gives each worker its own, found {device!r}."
        )
    return Cluster(address, workers, threads or 1, None if device == "auto" else device == "cuda")


def _everywhere(model: str) -> str:
    """A model's path as other machines have to have it."""
    return model if model == BUNDLED else str(shared.model_path(model).absolute())


def _opened(
    model: str,
    drafter: str | None,
    source_lang: str | None,
    target_lang: str | None,
    runtime: str,
    precision: str,
    device: str,
    threads: int | None,
) -> Translator:
    found = shared.open_model(model, runtime, precision, device, drafter, threads, announce=False)
    return found.with_languages(source_lang, target_lang)
