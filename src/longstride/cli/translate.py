"""longstride translate: lines in, translations out, as many lines as came in, in order, as soon as they are done."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli import options as shared
from longstride.cli.console import Bar, err, live, say, warn
from longstride.cli.draft_file import DraftFile
from longstride.cli.failures import keeping
from longstride.cli.html_page import HTML, TAG, translate_page
from longstride.cli.quick_start import import_torch
from longstride.cli.resuming import Partial
from longstride.cli.streams import Lines, input_file, is_standard, keep_what_is_read, result_files
from longstride.contract import OptionError, WorkError
from longstride.contract.bundled import BUNDLED
from longstride.text.corpus import lines_file
from longstride.text.files import check_writable

if TYPE_CHECKING:
    from longstride.cli.tracing import TraceTeller
    from longstride.contract import Decoded
    from longstride.text.glossary import Glossary
    from longstride.translator import Translation, Translator

USUAL = 32
"""Rows of a table, where nobody says how many."""
TABLES = 64
"""So many tables' worth of lines are sorted by length together: memory stays bounded however long the input."""


def translate(
    model: shared.Model = BUNDLED,
    input: Annotated[
        Path | None, typer.Option("-i", "--input", help="File to translate (default, and -: stdin).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write, .gz and .xz compressed (default, and -: stdout)."),
    ] = None,
    decoder: shared.DecoderName = None,
    set: shared.Set = None,
    drafter: shared.DrafterFolder = None,
    drafts: Annotated[
        Path | None,
        typer.Option(
            help="What outputs may be like: an earlier output, line by line, or a translation memory (.tmx, .tsv). "
            "Outputs are greedy's, and come faster."
        ),
    ] = None,
    glossary: shared.GlossaryFile = None,
    whole: shared.Whole = None,
    source_lang: shared.SourceLang = None,
    target_lang: shared.TargetLang = None,
    runtime: shared.Runtime = "auto",
    precision: shared.Precision = "auto",
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    batch: shared.AutoBatch = None,
    trace: Annotated[Path | None, typer.Option(help="Write how each line came about, as JSON lines.")] = None,
    show_trace: Annotated[
        bool, typer.Option("--show-trace", help="Print how each line came about, and a summary, to stderr.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line instead of plain text.")] = False,
    format: Annotated[
        str, typer.Option(help="text, line by line, or html: the input is one page, and its tags stay.")
    ] = "text",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Let the output grow as OUTPUT.partial, and go on with one that an interrupted run has left.",
        ),
    ] = False,
) -> None:
    """Translate lines of text.

    Lines of a pipe or terminal are answered as they come. An output file is written whole or not at all, unless
    --resume is given.
    """
    output = None if is_standard(output) else output
    if resume and output is None:
        raise OptionError("--resume expects --output FILE beside it, found none.")
    if output is None or (trace is not None and is_standard(trace)):
        (trace,) = result_files(trace)
    check_writable(output, trace)
    keep_what_is_read("--trace", trace, input, drafts, glossary)
    if format not in ("text", HTML):
        raise OptionError(f"--format expects text or {HTML}, found {format!r}.")
    by_line = {"--json": as_json, "--resume": resume, "--show-trace": show_trace, "--trace": trace, "--drafts": drafts}
    by_line["--whole or --sentences"] = whole is not None
    if format == HTML and (given := [name for name, value in by_line.items() if value]):
        raise OptionError(f"--format {HTML} expects no {given[0]}, which is for lines of text, found it.")
    options = shared.settings(set)
    reads = (input, drafts, glossary)
    shared.check_asked(model, drafter, runtime=runtime, precision=precision, reads=reads)
    import_torch()
    from longstride.cli.tracing import TraceTeller
    from longstride.model_folder import ModelFolder
    from longstride.translator import drafting_decoder

    if drafts is not None:
        decoder = drafting_decoder(decoder)
    lines = Lines(input, (batch or USUAL) * TABLES) if format == "text" else None
    drafted = DraftFile(drafts, lines) if drafts is not None and lines is not None else None
    translator = shared.open_model(model, runtime, precision, device, drafter, threads, announce=False)
    translator = translator.with_languages(source_lang, target_lang)
    chosen, limits = translator.decoder(decoder, **options)  # refuse bad options before reading anything
    terms = None if glossary is None else translator.glossary(input_file(glossary), chosen)
    report = partial(shared.say_report, translator, runtime=runtime, precision=precision)
    if lines is None:
        with ExitStack() as files:
            page, ran = translate_page(translator, input, decoder, options, batch or translator.batch, terms)
            _sink(files, output)[0](page)
        report(decoders=ran)
        return
    teller = TraceTeller(translator, err) if show_trace else None
    size = batch or translator.batch
    work = _Work(translator, decoder, options, batch, as_json, trace is not None, teller)
    work.drafts, work.glossary, work.whole = drafted, terms, whole
    work.n_best = getattr(getattr(chosen, "options", None), "n_best", 1) > 1
    if work.n_best and not as_json:
        say("The best output of each line is printed; --json prints all n_best.")
    if lines.typed and not resume:  # which waits for many lines
        say("Type a line, Enter translates it; Ctrl-D ends.")
    with _progress(lines, output) as work.shown:
        if resume and output is not None:
            made_by = {
                "model": translator.folder.sha256,
                "drafter": ModelFolder(shared.model_path(drafter)).sha256 if drafter is not None else None,
                "decoder": chosen.signature,
                "limits": vars(limits),
                "device": str(translator.runner.device),
                "batch": size,
                "json": as_json,
                "trace": str(trace) if trace is not None else None,
                "drafts": drafted.sha256 if drafted is not None else None,
                "glossary": terms.sha256 if terms is not None else None,
                "whole": whole,
                "languages": [source_lang, target_lang] if source_lang or target_lang else None,
            }
            lines.portion = translator.portion
            kept = Partial([output, trace] if trace is not None else [output], made_by)
            with keeping(lambda: f"kept {kept.lines:,} lines; the same command continues"):
                _resumed(work, lines, kept)
        else:
            _streamed(work, lines, output, trace)
    if teller is not None:
        teller.summary(work.calls)
    many = size if batch is None and work.done > 1 else None
    report(batch=many, decoders=work.ran)
    if work.undrafted:
        say("Greedy search drafts nothing; --decoder draft-verify drafts, and its output is the same.")


@dataclass
class _Work:
    """What is done with every portion of lines."""

    translator: Translator
    decoder: str | None
    options: dict[str, Any]
    batch: int | None
    as_json: bool
    traced: bool
    teller: TraceTeller | None
    n_best: bool = False
    drafts: DraftFile | None = None
    glossary: Glossary | None = None
    whole: bool | None = None
    shown: Bar | None = None
    calls: int = 0
    done: int = 0
    """lines of the input"""
    ran: dict[str, None] = field(default_factory=dict, init=False)
    """names of the decoders that did them"""
    tagged: bool = field(default=False, init=False)
    """a warning of markup was printed"""
    _decoded: int = field(default=0, init=False)
    _most: int = field(default=0, init=False)

    def __call__(self, lines: list[str]) -> Iterator[tuple[str, str]]:
        """For each line, what goes to the output and to the trace, without line ends."""
        from longstride.cli.tracing import trace_json

        self._decoded, self._most = 0, len(lines)
        found = self.translator.translate(
            lines,
            self.decoder,
            batch=self.batch,
            trace=self.traced or self.teller is not None,
            warn=warn,
            first_line=self.done + 1,
            watch=self._watch if self.shown is not None or self.teller is not None else None,
            drafts=None if self.drafts is None else self.drafts.of(lines, self.done),
            glossary=self.glossary,
            whole=self.whole,
            **self.options,
        )
        for source, translation in zip(lines, found, strict=True):
            self.done += 1
            if translation.decoder:
                self.ran[translation.decoder] = None
            if not self.tagged and (tag := TAG.search(source)):
                self.tagged = True
                warn(f"line {self.done} has markup ({tag[0][:40]}), which is read as text; --format html keeps tags.")
            told = trace_json(self.translator, self.done, source, translation) if self.traced else ""
            yield self._json(source, translation) if self.as_json else translation.text, told
            if self.teller is not None:
                self.teller.tell(self.done, source, translation)
        if self.shown is not None:
            self.shown.to(self.done)

    @property
    def undrafted(self) -> bool:
        """Return whether the printed trace shows no drafts although the model has a drafter."""
        drafting = "draft-verify" in self.translator.decoders
        return self.teller is not None and self.decoder is None and drafting and list(self.ran) == ["greedy"]

    def end(self) -> None:
        """All lines are done."""
        if self.drafts is not None:
            self.drafts.check_end(self.done)

    def _watch(self, decoded: Decoded) -> None:
        self.calls += decoded.calls
        self._decoded += len(decoded.hypotheses)
        if self.shown is not None:
            self.shown.to(self.done + min(self._decoded, self._most))  # of a line there may be several sentences

    def _json(self, source: str, one: Translation) -> str:
        found: dict[str, Any] = {"source": source, "text": one.text, "score": one.score, "tokens": list(one.tokens)}
        if self.n_best:
            texts = self.translator.text([hypothesis.tokens for hypothesis in one.n_best])
            found["n_best"] = [
                {"text": text, "score": hypothesis.score, "tokens": list(hypothesis.tokens)}
                for text, hypothesis in zip(texts, one.n_best, strict=True)
            ]
        return json.dumps(found, ensure_ascii=False)


def _streamed(work: _Work, lines: Lines, output: Path | None, trace: Path | None) -> None:
    with ExitStack() as files:
        write, flush = _sink(files, output)
        note = _sink(files, trace)[0] if trace is not None else None
        for portion in lines.portions():
            for text, told in work(portion):
                write(text + "\n")
                if note is not None:
                    note(told + "\n")
                if work.teller is not None:
                    flush()
            flush()
        work.end()


def _sink(files: ExitStack, path: Path | None) -> tuple[Callable[[str], Any], Callable[[], None]]:
    """How to write text to a file or, where there is none, to standard output; and how to send it off."""
    if path is None:
        return partial(_standard_output, sys.stdout.write), partial(_standard_output, sys.stdout.flush)
    file = files.enter_context(lines_file(path))
    # Flushing what is compressed would make it larger.
    flush = file.flush if isinstance(file, io.BufferedWriter) else lambda: None
    return lambda text: file.write(text.encode("utf-8")), flush


def _standard_output(call: Callable[..., Any], *text: str) -> None:
    try:
        call(*text)
    except BrokenPipeError:  # the reader has enough
        raise
    except OSError as error:
        raise WorkError(f"standard output: could not be written ({error.strerror or error}).") from error


def _resumed(work: _Work, lines: Lines, kept: Partial) -> None:
    """As one run would have: portions are as large as they may be, so that they are the same however often it stops."""
    kept.check_input(lines.skip(kept.lines))
    if kept.lines:
        say(f"Going on after line {kept.lines:,}.")
    work.done = kept.lines
    try:
        if not kept.done:
            kept.open()
            for portion in lines.portions(full=True):
                texts, traces = zip(*work(portion), strict=True)
                both = ["".join(line + "\n" for line in one).encode() for one in (texts, traces)]
                kept.add(portion, *both[: 1 + work.traced])
            work.end()
        kept.finish()
    finally:
        kept.close()


@contextmanager
def _progress(lines: Lines, output: Path | None) -> Iterator[Bar | None]:
    """A bar, where somebody looks on and translations do not come out at the same place."""
    if not live() or (output is None and sys.stdout.isatty()):
        yield None
    else:
        with Bar("translating", lines.total) as shown:
            yield shown
