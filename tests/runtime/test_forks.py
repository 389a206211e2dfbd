"""A model that has translated goes on in a forked process, where no thread of its parent's is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.folders import write_folder
from tests.runtime.graphs import HAS_ONNX, WHY_NOT_NATIVE

RUNTIMES = ["eager", *([] if WHY_NOT_NATIVE else ["native"]), *(["onnx"] if HAS_ONNX else [])]

FORKING = """
import os, sys
import longstride, torch

for runtime in sys.argv[2:]:
    translator = longstride.load(sys.argv[1], device="cpu", runtime=runtime, threads=None if runtime == "eager" else 2)
    lines = ["a b c", "d e", "f"]
    before = [one.text for one in translator.translate(lines)]
    many = torch.ones(1 << 20).add_(1)  # shared out among threads, as tables of a real size are
    child = os.fork()
    if not child:
        assert torch.equal(torch.ones(1 << 20).add_(1), many)
        assert [one.text for one in translator.translate(lines)] == before
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0, runtime
    print(runtime)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_forked_after_a_translation_translates(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, str(folder), *RUNTIMES]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.split() == RUNTIMES, done.stderr
