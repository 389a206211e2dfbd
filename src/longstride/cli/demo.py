"""longstride demo: a few sentences by every decoder the bundled model has, and how fast each of them is.

Which decoders there are and which sentences are shown, the model folder says: any that has an examples.tsv (a sentence
and its translation a line, with a tab between) can be shown. CTranslate2 translates them by the same weights where it
is installed. How it looks is in :mod:`longstride.cli.demo_page`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longstride.cli.console import Stages, out, warn
from longstride.cli.options import Model, open_model
from longstride.cli.threads import let_threads_rest
from longstride.contract import InputError, OptionError, Trace
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.cli.demo_page import Shown
    from longstride.interop.peers import Peer
    from longstride.translator import Translation, Translator

DemoRuntime = Annotated[str, typer.Option("--runtime", help="auto (the fastest), eager, native or onnx.")]
DemoPrecision = Annotated[str | None, typer.Option("--precision", help="fp32 or int8 (default: int8, but eager).")]
Everything = Annotated[
    bool, typer.Option("--all", help="Show each sentence by every decoder, and some of them step by step.")
]

EXAMPLES = "examples.tsv"
PASSES = 3
"""How often all sentences are timed,"""
PATIENCE = 10.0
"""unless so many seconds have gone by: then once has to do,"""
ENOUGH = 15.0
"""and after so many the sentences that are left are left out: the machine is slow, or busy with other things."""


def demo(
    model: Model = BUNDLED,
    runtime: DemoRuntime = "auto",
    precision: DemoPrecision = None,
    everything: Everything = False,
) -> None:
    """Translate a handful of sentences by every decoder of the bundled model, and compare their speed."""
    from longstride.cli import demo_page

    precision = precision or ("fp32" if runtime == "eager" else "int8")
    translator = open_model(model, runtime, precision, device="cpu")
    pairs = examples(translator.folder.path)
    with Stages() as stages:
        columns = _shown(translator, pairs, stages)
    count = len(next(iter(columns.values())))
    if count < len(pairs):
        warn(f"this takes long here: {count} of {len(pairs)} sentences are shown.")
    demo_page.show(out, translator, pairs[:count], columns, everything)


def examples(folder: Path) -> list[tuple[str, str]]:
    """The sentences stored with a model, and their translations; where it has none, the bundled model's."""
    from longstride.text.corpus import read_lines
    from longstride.translator import load

    file = folder / EXAMPLES
    if not file.is_file():
        file = load(BUNDLED, device="cpu").folder.path / EXAMPLES
    pairs = []
    for number, line in enumerate(read_lines(file), start=1):
        source, *rest = line.split("\t")
        if len(rest) != 1 or not source.strip() or not rest[0].strip():
            raise InputError(
                f"{file}, line {number}: expected a sentence and its translation with a tab between, found {line!r}."
            )
        pairs.append((source, rest[0]))
    if not pairs:
        raise InputError(f"{file}: expected sentences to show, found none.")
    return pairs


def _shown(translator: Translator, pairs: list[tuple[str, str]], stages: Stages) -> dict[str, list[Shown]]:
    """Every sentence by every decoder, greedy first and another library's last: once with a trace, then timed without.

    Decoders take turns pass by pass, not sentence by sentence: threads of two libraries disturb each other for a moment
    after every turn.
    """
    from longstride.cli.demo_page import GREEDY, OTHER, Shown

    names = sorted(translator.decoders, key=lambda name: name != GREEDY)
    by: dict[str, Callable[[str], Translation]] = {name: _ours(translator, name) for name in names}
    traced: dict[str, list[Translation]] = {name: [] for name in names}
    kept: list[str] = []
    begun = time.monotonic()
    for number, (source, _) in enumerate(pairs):
        stages.to("translating", number, len(pairs))
        if kept and time.monotonic() - begun > ENOUGH:
            break
        kept.append(source)
        for name in names:
            traced[name].append(_ours(translator, name, trace=True)(source))
        if not number:  # weights are read and graphs built: now it is the sentences that take time
            begun = time.monotonic()
    if (peer := _other(translator)) is not None:
        by[OTHER] = _theirs(translator, peer)
        traced[OTHER] = [by[OTHER](source) for source in kept]
    times: dict[str, list[list[float]]] = {name: [[] for _ in kept] for name in by}
    for number in range(PASSES):
        stages.to("timing", number, PASSES)
        if number and time.monotonic() - begun > PATIENCE:
            break
        for name, translate in by.items():
            for source, row in zip(kept, times[name], strict=True):
                started = time.perf_counter()
                translate(source)
                row.append(time.perf_counter() - started)
    return {
        name: [
            Shown(name, found, found.trace or Trace(()), 1000 * statistics.median(row))
            for found, row in zip(traced[name], times[name], strict=True)
        ]
        for name in by
    }


def _ours(translator: Translator, name: str, trace: bool = False) -> Callable[[str], Translation]:
    told = warn if trace else lambda said: None  # of lines that are cut, once
    # As a whole: another library is given the same.
    return lambda source: translator.translate([source], name, batch=1, trace=trace, warn=told, whole=True)[0]


def _theirs(translator: Translator, peer: Peer) -> Callable[[str], Translation]:
    """From text to text, by the same tokenizers."""
    from longstride.cli.demo_page import GREEDY
    from longstride.contract import Source
    from longstride.translator import Translation

    _, limits = translator.decoder(GREEDY)

    def translate(source: str) -> Translation:
        ids = translator.encode([source], warn=lambda said: None)
        tokens = peer.decode(Source.of(ids), limits).tokens[0]
        return Translation(translator.text([tokens])[0], tokens=tuple(tokens))

    return translate


def _other(translator: Translator) -> Peer | None:
    """CTranslate2 on the same weights, in the same precision and on as many threads; None: it cannot be had."""
    from longstride.interop.ctranslate2 import export_ctranslate2
    from longstride.interop.peers import CTranslate2, open_peer
    from longstride.runtime.eager import EagerRunner
    from longstride.runtime.libraries import MissingPackageError
    from longstride.translator import Translator

    let_threads_rest()
    runner = translator.runner
    try:
        with tempfile.TemporaryDirectory(prefix="longstride-demo-") as room:
            folder, threads = Path(room), getattr(runner, "threads", None)
            # From the folder itself: a runner may hold weights in another form.
            export_ctranslate2(Translator(translator.folder, EagerRunner("cpu", "fp32")), folder, runner.precision)
            return open_peer(CTranslate2.name, folder, translator, precision=runner.precision, threads=threads)
    except (MissingPackageError, OptionError):  # an extra that is not installed, or a model that it cannot take
        return None
