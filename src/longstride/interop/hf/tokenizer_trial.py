"""A script: read a folder's tokenizer files and encode lines, within bounds of processor time and memory.

It runs in a process of its own, since neither library can be stopped. It passes over files that it cannot read: the
import reads them afterwards and says what is wrong. It imports nothing of the package, which would take longer.
"""

import json
import sys
from pathlib import Path


def main(folder: Path, seconds: int, memory: int, lines: list[str]) -> None:
    """Do it, and end with 0 unless a bound was met."""
    try:
        import resource
    except ImportError:  # on Windows time is bounded from outside, and memory is not
        pass
    else:
        import sentencepiece  # noqa: F401 - before memory is bounded: code takes address space too
        import tokenizers  # noqa: F401

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for file in sorted(folder.iterdir()):
        try:
            _try(file, lines)
        except MemoryError:
            sys.exit(1)
        except Exception:
            continue
        # A panic of tokenizers, over a pattern for one, is no Exception and ends the script.


def _try(file: Path, lines: list[str]) -> None:
    if file.suffix == ".json":
        json.loads(file.read_bytes())
    if file.name == "tokenizer.json":
        from tokenizers import Tokenizer

        Tokenizer.from_file(str(file)).encode_batch(lines)
    if file.name == "merges.txt":
        from tokenizers.models import BPE

        BPE.from_file(str(file.with_name("vocab.json")), str(file))
    if file.suffix in (".spm", ".model"):
        from sentencepiece import SentencePieceProcessor

        SentencePieceProcessor(model_file=str(file)).encode(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
