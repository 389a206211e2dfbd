"""transformers' own `generate` on a Hugging Face folder, greedy or with prompt lookup, as a peer beside our decoders.

It obeys the folder's generation settings, as ours do after an import. Prompt lookup is the assisted generation that
needs no second model: what follows the last tokens where they stood before is the draft. It takes one sentence at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from longstride.contract import Limits, Source
from longstride.interop.peers import Peer, PeerOptions, Rows
from longstride.runtime.libraries import package

LOOKED_UP = 10
"""Tokens that prompt lookup drafts at once, as transformers' documentation has it."""


class Generate(Peer):
    """`generate` of any encoder-decoder that transformers can load."""

    name = "hf"

    def __init__(
        self,
        folder: Path,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        prompt_lookup: bool = False,
    ) -> None:
        transformers = package("transformers")
        self.options = PeerOptions()
        self.version = str(transformers.__version__)
        self.precision = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}.get(dtype, str(dtype))
        self.threads = torch.get_num_threads()
        logging = transformers.utils.logging
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        load = transformers.AutoModelForSeq2SeqLM.from_pretrained
        self._model: Any = load(folder, local_files_only=True, dtype=dtype).to(device).eval()
        self._assistance: dict[str, Any] = {"prompt_lookup_num_tokens": LOOKED_UP} if prompt_lookup else {}

    def _outputs(self, source: Source, limits: Limits, longest: Sequence[int]) -> Rows:
        device, special = self._model.device, self.special
        visible = torch.arange(source.longest) < source.lengths[:, None]
        settings: dict[str, Any] = {"decoder_start_token_id": special.start, **self._assistance}
        if limits.forced_first is not None:
            settings["forced_bos_token_id"] = limits.forced_first
        found = self._model.generate(
            input_ids=torch.where(visible, source.ids, special.pad).to(device),
            attention_mask=visible.long().to(device),
            max_length=max(longest) + 2,  # the start symbol and EOS count
            num_beams=1,
            do_sample=False,
            **settings,
        )
        rows = [row[1:] for row in found.tolist()]
        return [row[: row.index(special.eos)] if special.eos in row else row for row in rows]
