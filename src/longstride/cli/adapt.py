"""longstride adapt: a model gets a drafter of its own; cut at any moment, the same command goes on where it was."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli import options as shared
from longstride.cli.console import Stages, say
from longstride.cli.failures import keeping
from longstride.cli.streams import input_file, result_folder
from longstride.cli.threads import let_threads_rest
from longstride.contract import OptionError
from longstride.contract.options import parse

if TYPE_CHECKING:
    from longstride.adaptation.adapt import Request
    from longstride.adaptation.decoding import Text
    from longstride.bench.record_parts import Origin
    from longstride.bench.records import Latency
    from longstride.bench.workload import Workload
    from longstride.training.metrics import Reporter
    from longstride.translator import Translator
    from longstride.verification.draft_policy import DraftPolicy


def adapt(
    model: Annotated[str, typer.Argument(help="Model folder, a run's folder or a Hugging Face folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the adapted model.")],
    source: Annotated[
        Path | None,
        typer.Option("-s", "--source", help="Text to learn from, one sentence per line (.gz and .xz too)."),
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            "--pair",
            help="Languages of a multilingual model and their text, as eng_Latn-deu_Latn=FILE, instead of --source; "
            "given several times, one drafter serves all.",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=10**5,
            callback=shared.not_nan,
            help="Minutes of training without compiling; decoding before it takes up to half as long (default: 20).",
        ),
    ] = None,
    updates: Annotated[
        int | None, typer.Option(min=1, max=10**9, help="Updates of training, instead of minutes.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="An option of adaptation (docs/reference/options.md) as name=value; may be given several times.",
        ),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(help="What the result will be run by (default: cuda-graph on a GPU, native on a processor)."),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="The same (default: fp16 on a GPU, int8 on a processor).")
    ] = None,
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    source_lang: shared.SourceLang = None,
    target_lang: shared.TargetLang = None,
    work: Annotated[Path | None, typer.Option(help="Folder for what is unfinished (default: DIR.work).")] = None,
    until: Annotated[
        str, typer.Option(help="Stop after this stage: import, decode, train, lengths, exactness, race or write.")
    ] = "write",
    race: Annotated[bool, typer.Option(help="Time greedy search, drafts and other libraries at the end.")] = True,
    assistant: shared.Assistant = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep what the stages left.")] = False,
) -> None:
    """Give a model a drafter, so that it decodes the same output sooner.

    The model decodes the lines by its own greedy search; a drafter is trained to foresee these outputs; lengths of
    drafts are chosen by what they cost on this device; outputs for lines that were held out are compared with greedy's,
    id by id, and timed. Cut at any moment, the same command goes on where it was.
    """
    let_threads_rest()
    from longstride.adaptation.adapt import STAGES, Request, is_hugging_face
    from longstride.adaptation.adapt import adapt as run
    from longstride.adaptation.options import AdaptOptions
    from longstride.runtime.choosing import check_device

    if until not in STAGES:
        raise OptionError(f"--until expects {', '.join(STAGES)}, found {until!r}.")
    if assistant is not None and not is_hugging_face(assistant):
        raise OptionError(f"--assistant expects a Hugging Face folder, found {assistant}.")
    given = {name: value for name, value in (("minutes", minutes), ("updates", updates)) if value is not None}
    options = parse(AdaptOptions, {**given, **shared.settings(set)}, "adapt")
    where = check_device(device)
    gpu = where.type == "cuda"
    runtime = runtime or ("cuda-graph" if gpu else "native")
    precision = precision or ("fp16" if gpu else "int8" if runtime in ("native", "onnx") else "fp32")
    folder = result_folder(output)
    beside = folder if folder.name.strip(".") else folder.resolve()  # "." has no name of its own
    texts, name = _texts(source, pair or [], (source_lang, target_lang))
    request = Request(
        shared.model_path(model),
        texts,
        folder,
        work or beside.with_name(f"{beside.name}.work"),
        options.on(where.type),
        where,
        runtime,
        precision,
        name,
        race,
        assistant,
    )
    if (source_lang or target_lang) and not request.foreign:
        raise OptionError("--source-lang and --target-lang expect a Hugging Face folder, found a model folder.")
    around = _Around(request, threads)
    with keeping(lambda: f"what was done is kept in {request.work}; the same command goes on"), around:
        made = run(request, around, until, keep)
    if made is not None:
        say(f"Adapted model: {made}; what it is and does: {made / 'README.md'}")
    elif around.stopped:
        say("Stopped; the same command goes on.")
        sys.exit(130)


def _texts(source: Path | None, pairs: list[str], languages: tuple[str | None, str | None]) -> tuple[list[Text], str]:
    """What is learnt from, and a name for it."""
    from longstride.adaptation.decoding import Text
    from longstride.text.corpus import read_lines

    if (source is None) == (not pairs):
        raise OptionError(f"Adapting expects --source or --pair, found {'both' if pairs else 'neither'}.")
    if source is not None:
        source = input_file(source)
        return [Text(list(read_lines(source)), languages)], source.name
    if any(languages):
        raise OptionError("--source-lang and --target-lang expect --source: every --pair has its own.")
    texts: list[Text] = []
    for told in pairs:
        pair, is_there, file = told.partition("=")
        one, between, other = pair.partition("-")
        if not (is_there and between and one and other and file) or "/" in pair or "-" in other:
            raise OptionError(f"--pair expects two languages and a file, as eng_Latn-deu_Latn=FILE, found {told!r}.")
        if pair in [text.pair for text in texts]:
            raise OptionError(f"--pair expects every pair of languages once, found {pair} twice.")
        texts.append(Text(list(read_lines(input_file(Path(file)))), (one, other), pair))
    return texts, "lines"


class _Around:
    """What a run needs of the command line."""

    def __init__(self, request: Request, threads: int | None) -> None:
        self._request = request
        self._threads = threads
        self._shown = Stages()
        self._telling: Any = None
        self.stopped = False

    def __enter__(self) -> _Around:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._shown.close()
        if self._telling is not None:
            self._telling.close()

    def bring_in(self, folder: Path, into: Path, languages: tuple[str | None, str | None]) -> dict[str, Any]:
        """As `import` does it; where transformers is not installed, the import is not compared with it."""
        from longstride.interop.hf.checked import import_checked
        from longstride.interop.peers import SENTENCES
        from longstride.runtime.libraries import MissingPackageError, package

        self.progress("importing", 0, 1)
        lines: tuple[str, ...] | None = SENTENCES
        try:
            package("transformers")
        except MissingPackageError:
            lines = None
        found, compared = import_checked(folder, into, lines, languages, note=self.message)
        told = f"{found.family}, not compared: transformers is not installed"
        return {"told": told if compared is None else f"{found.family}. {compared}".rstrip(".")}

    def open(self, folder: Path) -> Translator:
        """As users will run it."""
        asked = self._request
        return shared.open_model(str(folder), asked.runtime, asked.precision, str(asked.device), threads=self._threads)

    def progress(self, stage: str, done: int, total: int) -> None:
        """A bar on a terminal."""
        self._shown.to(stage, done, total)

    def message(self, text: str) -> None:
        """A line."""
        self._shown.close()
        if self._telling is not None:
            self._telling.close()
            self._telling = None
            self.stopped = False
        say(text)

    def reporter(self) -> Reporter:
        """As `train` tells it."""
        from longstride.cli.train import _Reporter

        self._shown.close()
        found = self._telling = _Reporter()
        self.stopped = True  # until the stage is told to be done
        return found

    def origin(self, translator: Translator) -> Origin:
        """This run, on this machine."""
        from longstride.cli.provenance import origin_of

        return origin_of(f"adaptation to {self._request.output.name}", translator)

    def race(self, translator: Translator, workload: Workload, policy: DraftPolicy) -> list[Latency]:
        """Greedy search, drafts and other libraries side by side."""
        from longstride.cli.adapt_race import race

        options, base = self._request.options, self._request.model
        if self._request.foreign:
            base = self._request.work / "imported"
        origin = self.origin(translator)
        return race(
            translator,
            base,
            workload,
            policy,
            options.passes,
            options.batch_sizes,
            origin,
            self.progress,
            self.message,
            self._request.assistant,
        )
