"""Greedy search over a folder of ONNX graphs, with ONNX Runtime and numpy alone: the check of an export.

Written the way somebody without our code would write it: no torch in the loop, no binding, caches handed in and out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longstride.contract import EOS, PAD, RESERVED, START, Limits, Source
from longstride.interop.onnx_folder import MANIFEST
from longstride.interop.optional import package
from longstride.interop.peers import Peer, PeerOptions, Rows


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
            token = int(scores.argmax())
            if token == eos:
                break
            output.append(token)
        return output
