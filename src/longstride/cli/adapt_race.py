"""The race at the end of an adaptation: our greedy search and drafts beside other libraries on the same weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from longstride.bench.candidate import Candidate
from longstride.bench.measure import Protocol, measure
from longstride.bench.record_parts import Origin
from longstride.bench.records import Latency
from longstride.bench.traced_pass import Progress
from longstride.bench.workload import Workload
from longstride.cli.lineup import Entry, line_up
from longstride.cli.peers import peer_candidates, read_peers
from longstride.contract import LongstrideError
from longstride.contract.running import DTYPES
from longstride.interop.hf import export_hf
from longstride.interop.peers import LOOKED_UP, HuggingFace
from longstride.model_folder import ModelFolder
from longstride.runtime.eager import EagerRunner
from longstride.translator import Translator
from longstride.verification.draft_policy import DraftPolicy

SLOW_SAMPLE = 50
"""Sentences that other libraries decode, at most, in one pass."""
GENERATE, LOOKUP, ASSISTED = "hf generate", "hf prompt lookup", "hf assisted"


def race(
    translator: Translator,
    base: Path,
    workload: Workload,
    policy: DraftPolicy,
    passes: int,
    batch_sizes: Sequence[int],
    origin: Origin,
    progress: Progress,
    tell: Callable[[str], None],
    assistant: Path | None = None,
) -> list[Latency]:
    """Records of all candidates by batch size, in closed batches, and of ours in open ones too, as `translate` decodes
    lines; `base` is the model folder that other libraries are given, `assistant` a Hugging Face folder that drafts for
    it."""
    entries = [Entry("greedy", {}), Entry("draft-verify", {"lengths": str(policy)})]
    ours = [replace(one, name=one.decoder.name) for one in line_up([translator], entries, {}, {}, False)]
    ours[0] = replace(ours[0], role="baseline")
    progress("opening other libraries", 0, 1)
    others = _others(translator, base, ours, min(SLOW_SAMPLE, workload.size), tell, assistant)
    others = [one for one in others if _runs(one, workload, tell)]
    found: list[Latency] = []
    for size in [size for size in batch_sizes if size <= workload.size] or [1]:
        # Assisted generation takes one sentence at a time.
        members = [one for one in (*ours, *others) if size == 1 or one.name not in (LOOKUP, ASSISTED)]
        closed = Protocol(passes, (size,), "greedy")
        for protocol, raced in ((closed, members), (replace(closed, batch_kind="open"), ours)):
            for records in measure(workload, raced, protocol, origin, progress):
                found += records
    return found


def _runs(peer: Candidate, workload: Workload, tell: Callable[[str], None]) -> bool:
    """Whether another library decodes a sentence at all: not every one takes every model that it reads."""
    try:
        peer.decoder.decode(workload.source([0]), peer.limits)
    except Exception as error:  # of any kind: it is not ours
        tell(f"{peer.name} takes no part in the race: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
        return False
    return True


def _others(
    translator: Translator,
    base: Path,
    ours: Sequence[Candidate],
    sample: int,
    tell: Callable[[str], None],
    assistant: Path | None,
) -> list[Candidate]:
    """transformers and CTranslate2 where they are installed and know the model; what is left out is said."""
    found: list[Candidate] = []
    model = Translator(ModelFolder(base), EagerRunner("cpu", "fp32"))
    runner = translator.runner
    precision = runner.precision if runner.precision in ("fp16", "bf16") else "fp32"
    with tempfile.TemporaryDirectory(prefix="longstride-race-") as temporary:
        folder = Path(temporary) / "hf"
        folder.mkdir()
        try:
            export_hf(model, folder)
            for name in (GENERATE, LOOKUP, *([ASSISTED] if assistant is not None else [])):
                drafts: dict[str, Any] = {"prompt_lookup": name == LOOKUP}
                drafts |= {"assistant": assistant} if name == ASSISTED else {}
                peer = HuggingFace(folder, None, runner.device, DTYPES[precision], **drafts)
                peer.special = translator.folder.special
                notes: dict[str, Any] = {"library": f"transformers {peer.version}", "threads": peer.threads}
                notes |= {"prompt_lookup_num_tokens": LOOKED_UP} if name == LOOKUP else {}
                notes |= {"assistant": assistant.resolve().name} if name == ASSISTED and assistant is not None else {}
                found.append(
                    replace(ours[0], name=name, decoder=peer, role="candidate", precision=precision, runtime="hf",
                            captured=None, sample=sample, passes=1, options={}, notes=notes)
                )  # fmt: skip
        except LongstrideError as error:
            told = "transformers" if not found else ASSISTED
            tell(f"{told} takes no part in the race: {error}")
        if runner.device.type != "cpu":
            return found
        try:
            wanted = "int8" if runner.precision == "int8" else "fp32"
            every = read_peers("ctranslate2", model)
            entries = [one for one in every if one.search == "greedy" and one.precision == wanted]
            found += peer_candidates(entries, model, ours[:1], {"": sample})
        except LongstrideError as error:
            tell(f"CTranslate2 takes no part in the race: {error}")
    return found
