"""Peers in a benchmark: other libraries on the same weights, made into candidates beside ours.

The first model is exported to a temporary folder and opened by each library, for greedy search and for beam search of
the width that ours has. What a fair reader wants to know of each goes into its record.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from longstride.bench.candidate import Candidate
from longstride.cli.provenance import model_tag
from longstride.cli.threads import RESTING, let_threads_rest
from longstride.contract import Limits, OptionError
from longstride.interop.ctranslate2 import write_ctranslate2
from longstride.interop.exportable import Exportable, exportable
from longstride.interop.hf import write_marian
from longstride.interop.peers import ASSISTED, BUCKET, COMPILED, PEERS, Peer, PeerOptions, open_peer
from longstride.runtime.eager import EagerRunner
from longstride.search.options import BeamOptions
from longstride.systems.autoregressive.decoder import Beam
from longstride.translator import Translator

SLOW_SAMPLE = 200
"""Sentences that a slow peer decodes, in one pass, unless told otherwise."""


@dataclass(frozen=True)
class PeerEntry:
    """One peer in one search and precision."""

    peer: str
    search: Literal["greedy", "beam"]
    precision: str

    @property
    def name(self) -> str:
        """``ctranslate2 int8 greedy``"""
        return f"{self.peer} {self.precision} {self.search}"

    @property
    def slow(self) -> bool:
        """Whether it decodes a sample only."""
        return self.peer != "ctranslate2" or self.search == "beam"

    @property
    def library(self) -> str:
        """Who writes and reads its folder."""
        return "hf" if self.peer in (COMPILED, ASSISTED) else self.peer


def read_peers(text: str | None, translator: Translator, assistant: Path | None = None) -> list[PeerEntry]:
    """What --peers asks for: each library in greedy and beam search, in the precisions it has here; an `assistant` is a
    peer of its own."""
    if assistant is not None:
        text = ASSISTED if text is None else f"{text},{ASSISTED}"
    if text is None:
        return []
    entries: list[PeerEntry] = []
    known = (*PEERS, COMPILED, *([ASSISTED] if assistant is not None else []))
    device = translator.runner.device.type
    for name in (part.strip() for part in text.split(",")):
        if name not in known:
            raise OptionError(f"--peers expects {', '.join(known)} or several with commas between, found {name!r}.")
        if name == "ctranslate2" and device != "cpu":
            raise OptionError(
                f"--peers ctranslate2 is compared on the processor: --device expects cpu, found {device}."
            )
        if name == COMPILED and device != "cuda":
            raise OptionError(f"--peers {COMPILED} compiles for CUDA alone: --device expects cuda, found {device}.")
        ours = translator.runner.precision if translator.runner.precision != "int8" else "fp32"  # PyTorch has none
        precisions = ("fp32", "int8") if name == "ctranslate2" else (ours,)
        for precision in precisions:
            entries.append(PeerEntry(name, "greedy", precision))
            if name not in (COMPILED, ASSISTED):
                entries.append(PeerEntry(name, "beam", precision))
    return list(dict.fromkeys(entries))


def peer_candidates(
    entries: Sequence[PeerEntry],
    translator: Translator,
    ours: Sequence[Candidate],
    samples: Mapping[str, int],
    baselines: Sequence[str] = (),
    assistant: Path | None = None,
) -> list[Candidate]:
    """Export the model, load it into every library, and describe each as a candidate.

    Limits and the width of beams are those of `ours`; `samples` and `baselines` are what the command line said.
    """
    if not entries:
        return []
    let_threads_rest()
    # From the folder itself: a runner may hold weights in another form.
    model = exportable(Translator(translator.folder, EagerRunner("cpu", "fp32")), "--peers")
    found = []
    beam = next((one.decoder.options for one in ours if isinstance(one.decoder, Beam)), BeamOptions())
    # Peers divide by a power of the length; gnmt grows with the same power of it in the long run.
    strength = 0.0 if beam.length_penalty == "none" else beam.strength
    threads = int(getattr(translator.runner, "threads", torch.get_num_threads()))
    with tempfile.TemporaryDirectory(prefix="longstride-peers-") as temporary:
        for entry in entries:
            options = PeerOptions(beam.width, strength) if entry.search == "beam" else PeerOptions()
            folder = _exported(entry, model, Path(temporary))
            peer = open_peer(entry.peer, folder, translator, options, entry.precision, threads, assistant)
            alike = next((one for one in ours if one.decoder.name == entry.search), ours[0])
            found.append(
                Candidate(
                    entry.name,
                    peer,
                    alike.limits,
                    role="baseline" if entry.name in baselines else "candidate",
                    model=model_tag(translator),
                    device=str(translator.runner.device),
                    precision=entry.precision,
                    runtime=entry.peer,
                    synchronize=alike.synchronize,
                    memory=alike.memory,
                    sample=samples.get(entry.peer, samples.get("", SLOW_SAMPLE if entry.slow else None)),
                    passes=1 if entry.slow else None,
                    options={"width": options.width, "strength": options.strength},
                    notes={**_notes(entry, peer, alike.limits, beam), "our_threads": threads},
                )
            )
    return found


def _exported(entry: PeerEntry, model: Exportable, room: Path) -> Path:
    """The folder this peer reads, written when it is first asked for."""
    # transformers converts when it loads; CTranslate2 reads each precision from a folder of its own.
    stored = "fp32" if entry.library == "hf" else entry.precision
    folder = room / f"{entry.library}-{stored}"
    if not folder.exists():
        folder.mkdir()
        if entry.library == "hf":
            write_marian(model, folder)
        else:
            write_ctranslate2(model, folder, stored)
    return folder


def _notes(entry: PeerEntry, peer: Peer, limits: Limits, beam: BeamOptions) -> dict[str, Any]:
    """What a fair reader wants to know."""
    library = "transformers" if entry.library == "hf" else entry.library
    notes: dict[str, Any] = {
        "library": f"{library} {peer.version}",
        "weights": "ours, exported for this run",
        "threads": peer.threads,
        "length_limits": (
            f"as ours: {limits.max_ratio:g} times the source and {limits.max_extra}, at most {limits.max_length}; "
            "in a batch the widest limit holds for all"
        ),
        "clock": "from ids to ids, tokenization excluded, as for ours",
    }
    if entry.peer == "ctranslate2":
        notes["clock"] += "; the library takes pieces, and looking them up is inside the clock"
        notes["weights"] += f", stored and computed in {entry.precision}"
        notes["idle_threads"] = " ".join(f"{name}={os.environ.get(name, '')}" for name in RESTING)
    elif entry.peer == COMPILED:
        notes["cache"] = f"generate with its static cache, compiled; sources are padded to multiples of {BUCKET}"
    elif entry.peer == ASSISTED:
        notes["cache"] = "generate with a smaller model that drafts, one sentence at a time, not compiled"
    else:
        notes["cache"] = "generate with its own growing cache, not compiled"
    if entry.search == "beam":
        notes["beam"] = (
            f"width {peer.options.width}, scores / length^{peer.options.strength:g}; "
            f"ours: {beam.length_penalty} {beam.strength:g}; each stops by its own rule"
        )
    return notes
