"""A drafter with fewer ids of its own, cut from one that has all of its verifier's: what is seldom written is left out.

    python benchmarks/cut_ids.py MODEL OUT --ids 10240 TEXT=LINES ...

TEXT is target text, plain or .xz, of which so many lines are counted by the model's tokenizer. Nothing is trained: rows
of the embedding and of the link's tables are kept or dropped. Prints which share of the tokens can still be drafted.
The model must have our own special ids, one tokenizer for both sides and a drafter that keeps all ids.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
from collections import Counter
from itertools import islice
from pathlib import Path

import sentencepiece
import torch
from safetensors.torch import load_file, save_file

from longstride.contract import RESERVED

BY_ID = ("target_embedding.weight", "link.before.weight", "link.after.weight")
"""Weights with a row for each id."""


def main() -> None:
    """Count, cut, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ids", type=int, default=10_240)
    parser.add_argument("texts", nargs="+", metavar="TEXT=LINES")
    given = parser.parse_args()
    config = json.loads((given.model / "config.json").read_text(encoding="utf-8"))
    part = config["parts"]["drafter"]
    if part["options"]["kept"] is not None:
        raise SystemExit(f"{given.model}: expected a drafter with all ids, found {part['options']['kept']} of its own.")
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(given.model / config["tokenizer"]))
    counts: Counter[int] = Counter()
    for text in given.texts:
        path, _, lines = text.rpartition("=")
        with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as file:
            for ids in tokenizer.encode([line.rstrip("\n") for line in islice(file, int(lines))]):
                counts.update(ids)
    reserved = len(RESERVED)
    chosen = [id for id, _ in counts.most_common() if id >= reserved][: given.ids - reserved]
    kept = torch.tensor([*range(reserved), *chosen])
    print(f"{len(kept):,} ids are {sum(counts[id] for id in chosen) / counts.total():.4%} of {counts.total():,} tokens")
    weights = load_file(given.model / part["weights"])
    cut = {name: weight[kept].contiguous() if name in BY_ID else weight for name, weight in weights.items()}
    given.out.mkdir(parents=True)
    for name in {config["tokenizer"], config["parts"]["model"]["weights"]}:
        shutil.copy2(given.model / name, given.out / name)
    save_file({**cut, "kept_ids": kept}, given.out / part["weights"])
    part["options"]["kept"] = len(kept)
    part["sha256"] = hashlib.sha256((given.out / part["weights"]).read_bytes()).hexdigest()
    (given.out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
