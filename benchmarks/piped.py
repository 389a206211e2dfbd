"""A file through `longstride translate` with its defaults, and through CTranslate2 and Hugging Face on its weights.

    python benchmarks/piped.py MODEL LINES OUT.jsonl [--most 2000] [--peers 200] [--threads 2]

Every way is a process of its own, from its start to its last line, and reads text and writes text. CTranslate2 decodes
in int8, greedily, lines sorted by length, 32 a batch; Hugging Face's `generate` in fp32, likewise, on the first
`--peers` lines alone, for it takes long. Prints and appends a JSON line each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from time import perf_counter

from longstride.bench.machine import describe_machine
from longstride.text.corpus import read_lines

CTRANSLATE2 = """
import json, sys, ctranslate2, sentencepiece
folder, threads = sys.argv[1], int(sys.argv[2])
ends = [] if json.load(open(f"{folder}/config.json"))["add_source_eos"] else ["</s>"]
pieces = [sentencepiece.SentencePieceProcessor(f"{folder}/{side}.spm") for side in ("source", "target")]
translator = ctranslate2.Translator(folder, compute_type="int8", inter_threads=1, intra_threads=threads)
lines = sys.stdin.read().splitlines()
tokens = [pieces[0].encode(line, out_type=str) + ends for line in lines]
found = translator.translate_batch(tokens, beam_size=1, max_batch_size=32, max_decoding_length=256)
print("\\n".join(pieces[1].decode(one.hypotheses[0]) for one in found))
"""
HUGGING_FACE = """
import sys, torch, transformers
torch.set_num_threads(int(sys.argv[2]))
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
model = transformers.AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1]).eval()
lines = sys.stdin.read().splitlines()
order = sorted(range(len(lines)), key=lambda place: len(lines[place]))
found = [""] * len(lines)
for first in range(0, len(order), 32):
    places = order[first : first + 32]
    batch = tokenizer([lines[place] for place in places], return_tensors="pt", padding=True)
    with torch.inference_mode():
        ids = model.generate(**batch, num_beams=1, do_sample=False, max_length=256)
    for place, text in zip(places, tokenizer.batch_decode(ids, skip_special_tokens=True)):
        found[place] = text
print("\\n".join(found))
"""


def main() -> None:
    """Export, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("lines", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--most", type=int, default=2000)
    parser.add_argument("--peers", type=int, default=200, help="lines for Hugging Face")
    parser.add_argument("--threads", type=int, default=2)
    o = parser.parse_args()
    lines = list(read_lines(o.lines))[: o.most]
    ours = [sys.executable, "-m", "longstride"]
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("ctranslate2", "hf"):
            subprocess.run([*ours, "export", "-m", o.model, "--to", kind, "-o", f"{scratch}/{kind}"], check=True)
        translate = [*ours, "translate", "-m", o.model, "--threads", str(o.threads)]
        ways: dict[str, tuple[list[str], int]] = {
            "longstride": (translate, o.most),
            "longstride, draft-verify": ([*translate, "--decoder", "draft-verify"], o.most),
            "ctranslate2 int8": ([sys.executable, "-c", CTRANSLATE2, f"{scratch}/ctranslate2", str(o.threads)], o.most),
            "hugging face fp32": ([sys.executable, "-c", HUGGING_FACE, f"{scratch}/hf", str(o.threads)], o.peers),
        }
        outputs: dict[str, list[str]] = {}
        for name, (command, most) in ways.items():
            given = lines[:most]  # there may be fewer
            text = "".join(f"{line}\n" for line in given)
            begun = perf_counter()
            environment = {**os.environ, "OMP_NUM_THREADS": str(o.threads)}
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, env=environment)
            seconds = perf_counter() - begun
            outputs[name] = done.stdout.splitlines()
            first = outputs["longstride"]
            differ = sum(one != other for one, other in zip(outputs[name], first, strict=False))
            told = {
                "date": str(date.today()), "processor": describe_machine().cpu, "threads": o.threads,
                "model": o.model, "text": o.lines.name, "lines": len(outputs[name]), "way": name,
                "seconds": round(seconds, 2), "lines_per_second": round(len(given) / seconds, 1), "differ": differ,
            }  # fmt: skip
            with o.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
