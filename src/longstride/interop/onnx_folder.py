"""A model's programs as ONNX graphs in a folder, with a manifest that says what goes in and what comes out.

The graphs are those that the runtime onnx runs, so that whoever has ONNX Runtime, and nothing else of ours, can write
our decoders' loops around them (docs/runtimes.md):

    manifest.json        format, precision, reserved ids, every graph's inputs, states and outputs
    remember.onnx        source ids -> memory
    verify.onnx          a step of any width from two: ids -> logits and hidden states; caches in and out
    heads.onnx           where there are heads: hidden states, with links also newest tokens -> the next block
    remember-draft.onnx, draft.onnx   where there is a drafter
    tokenizer files      as in the model folder
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from longstride.contract import EOS, PAD, RESERVED, START, Limits, OptionError, Program, Source
from longstride.contract.running import Shape
from longstride.interop.peers import Peer, PeerOptions, Rows
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.ops.attention import ALIGNMENT
from longstride.runtime.libraries import MissingPackageError, package
from longstride.systems.blockwise import programs as blockwise
from longstride.systems.blockwise.model import Heads
from longstride.systems.draft_verify import programs as drafting
from longstride.systems.draft_verify.model import Drafter, reads_whole_encoder
from longstride.text.files import file_sha256, write_json
from longstride.translator import Translator
from longstride.version import __version__

FORMAT = 1
MANIFEST = "manifest.json"
LEAST_STEP = 2
PRECISIONS = ("fp32", "int8")
KINDS = {torch.float32: "float32", torch.int64: "int64", torch.bool: "bool"}

VERIFIED = ("greedy", "blockwise", "draft-verify")
"""Decoders whose model calls have graphs, the plainest first."""


def export_onnx(translator: Translator, folder: Path, precision: str = "fp32") -> str:
    """Fill an empty folder; says what was made."""
    if precision not in PRECISIONS:
        raise OptionError(f"--precision expects {' or '.join(PRECISIONS)} for ONNX, found {precision!r}.")
    try:
        from longstride.runtime.onnx_builder import write_graph
    except ImportError as error:
        raise MissingPackageError(
            f"This expects the package {error.name}, which is not installed here: pip install 'longstride[onnx]'."
        ) from None
    graphs: dict[str, Any] = {}
    for program in _programs(translator):
        file = folder / f"{program.name}.onnx"
        write_graph(program, file, precision == "int8")
        graphs[program.name] = _described(program, file)
    config = translator.folder.config
    for name in {config.tokenizer, config.source_tokenizer or config.tokenizer}:
        shutil.copyfile(translator.folder.path / name, folder / name)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "producer": f"longstride {__version__}",
        "precision": precision,
        "least_step": LEAST_STEP,
        "slots_multiple": ALIGNMENT,
        "symbols": _symbols(translator),
        "never_generated": list(translator.folder.special.never_generated),
        "longest": translator.longest,
        "tokenizer": config.tokenizer,
        "source_tokenizer": config.source_tokenizer or config.tokenizer,
        "graphs": graphs,
    }
    drafter = _parts(translator).get("drafter")
    if isinstance(drafter, Drafter) and drafter.kept_ids is not None:
        manifest["kept_ids"] = drafter.kept_ids.tolist()
    write_json(folder / MANIFEST, manifest)
    return f"{len(graphs)} ONNX graphs in {precision} ({', '.join(graphs)}), and {MANIFEST}."


def _symbols(translator: Translator) -> dict[str, int]:
    """Special ids by the names that our own vocabularies give them, in the order of these."""
    ids = translator.folder.special
    found = zip(RESERVED, (ids.pad, ids.unk, ids.start, ids.eos, ids.mask), strict=True)
    return {name: token for name, token in found if token is not None}


def _parts(translator: Translator) -> dict[str, Any]:
    """What those decoders are made of, by role."""
    parts: dict[str, Any] = {}
    for decoder in VERIFIED:
        if decoder in translator.decoders:
            parts = {**translator.parts_of(decoder), **parts}
    return parts


def _programs(translator: Translator) -> Iterator[Program]:
    """The model calls of every decoder that has graphs."""
    parts = _parts(translator)
    model, heads, drafter = (parts.get(role) for role in ("model", "heads", "drafter"))
    if not isinstance(model, Transformer):
        offered = ", ".join(translator.decoders)
        raise OptionError(
            f"ONNX expects a model that offers {' or '.join(VERIFIED)}; {translator.folder.path} offers {offered}."
        )
    yield programs.encode_source(model)
    if isinstance(heads, Heads):
        yield blockwise.verify(model, heads)
        yield blockwise.predict(model, heads, heads.options.k)
    else:
        yield programs.verify(model)
    if isinstance(drafter, Drafter):
        yield drafting.encode_source(drafter, model, reads_whole_encoder(drafter.options, model))
        yield drafting.draft(drafter)


def _described(program: Program, file: Path) -> dict[str, Any]:
    spec = program.graph
    assert spec is not None

    def values(specs: Any) -> dict[str, Any]:
        return {name: _value(dtype, shape, name in spec.layered) for name, (dtype, shape) in specs.items()}

    return {
        "file": file.name,
        "sha256": file_sha256(file),
        "inputs": values(spec.inputs),
        "state": values(spec.state),
        "outputs": {name: _value(dtype, shape, False) for name, (dtype, shape) in spec.outputs.items()},
    }


def _value(dtype: torch.dtype, shape: Shape, layered: bool) -> dict[str, Any]:
    """What is layered is one value a layer: ``name.0``, ``name.1``, ...; a state's new value is ``new_name.0``."""
    if layered:
        return {"type": KINDS[dtype], "layers": shape[0], "shape": list(shape[1:])}
    return {"type": KINDS[dtype], "shape": list(shape)}


class OnnxFolder(Peer):
    """Greedy search by exported graphs."""

    name = "onnx"

    def __init__(self, folder: Path, threads: int = 1) -> None:
        onnxruntime = package("onnxruntime")
        self.options = PeerOptions()
        self.version = str(onnxruntime.__version__)
        self.threads = threads
        self._manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        self.precision = self._manifest["precision"]
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.log_severity_level = 3  # that caches are not written in place is known
        self._sessions = {
            name: onnxruntime.InferenceSession(
                str(folder / graph["file"]), settings, providers=["CPUExecutionProvider"]
            )
            for name, graph in self._manifest["graphs"].items()
            if name in ("remember", "verify")
        }

    def _outputs(self, source: Source, limits: Limits, longest: Sequence[int]) -> Rows:
        return [
            self._decode(np.array([ids[:length]]), limits, most)
            for ids, length, most in zip(source.ids.tolist(), source.lengths.tolist(), longest, strict=True)
        ]

    def _decode(self, ids: Any, limits: Limits, most: int) -> list[int]:
        manifest = self._manifest
        pad, start, eos = (manifest["symbols"][RESERVED[id]] for id in (PAD, START, EOS))
        given = {"ids": ids, "lengths": np.array([ids.shape[1]])}
        keys, values, visible, _ = self._sessions["remember"].run(["keys", "values", "visible", "states"], given)
        feed: dict[str, Any] = {"visible": visible}
        layers = range(keys.shape[0])
        for layer in layers:
            feed |= {f"memory_keys.{layer}": keys[layer], f"memory_values.{layer}": values[layer]}
        multiple = manifest["slots_multiple"]
        slots = -(-(most + manifest["least_step"]) // multiple) * multiple
        empty = np.zeros((1, keys.shape[2], slots, keys.shape[4]), np.float32)
        caches = {f"{name}.{layer}": empty for name in ("keys", "values") for layer in layers}
        never = [*manifest["never_generated"], *limits.banned]
        output: list[int] = []
        while len(output) < most:
            # A step is at least two tokens wide; the second is of no account, and the next step covers its slot.
            step = np.array([[output[-1] if output else start, pad]])
            place = {"ids": step, "start": np.array([len(output)])}
            logits, *new = self._sessions["verify"].run(
                ["logits", *(f"new_{name}" for name in caches)], {**feed, **caches, **place}
            )
            caches = dict(zip(caches, new, strict=True))
            scores = logits[0, 0]
            scores[never] = -np.inf
            if len(output) < limits.min_length:
                scores[eos] = -np.inf
            scores[_repeating([start, *output], limits.no_repeat_ngram)] = -np.inf
            token = int(scores.argmax())
            if scores[token] == -np.inf:  # limits leave nothing
                token = eos
            if not output and limits.forced_first is not None:
                token = limits.forced_first
            if token == eos:
                break
            output.append(token)
        return output


def _repeating(said: list[int], size: int) -> list[int]:
    """Tokens that would end an n-gram of this size that was said before (0: any may)."""
    last = said[len(said) - size + 1 :]
    places = range(len(said) - size + 1) if size else ()
    return [said[place + size - 1] for place in places if said[place : place + size - 1] == last]
