"""What is not asked for is not imported: each of these would let a person wait, PyTorch for seconds."""

from __future__ import annotations

import json
import subprocess
import sys

import torch

from longstride.cli.main import COMMANDS
from longstride.cli.quick_start import TRIED

HEAVY = ("torch", "numpy", "yaml", "sacrebleu", "matplotlib", "sentencepiece", "longstride.translator")

NOT_FOR_GREEDY = (
    "longstride.bench",
    "longstride.distillation",
    "longstride.interop",
    "longstride.objectives",
    "longstride.recipe",
    "longstride.runtime.native",
    "longstride.runtime.onnx_runner",
    "longstride.systems.blockwise",
    "longstride.systems.draft_verify",
    "longstride.systems.interleaved",
    "longstride.systems.lattice",
    "longstride.systems.non_autoregressive",
    "longstride.tasks",
    "longstride.training",
    "ctranslate2",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "sacrebleu",
    "torch._dynamo",
    "torch._inductor",
    "torch.utils.tensorboard",
    "transformers",
    "yaml",
)

CODE = """
import json, sys
from longstride.cli.main import main
codes = [main(arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([codes, [name for name in json.loads(sys.argv[2]) if name in sys.modules]]), file=sys.stderr)
"""


def imported(commands: list[list[str]], among: tuple[str, ...], text: str = "", code: int = 0) -> list[str]:
    """Which of these modules commands have imported when they are done."""
    command = [sys.executable, "-c", CODE, json.dumps(commands), json.dumps(among)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, input=text)
    codes, found = json.loads(ran.stderr.splitlines()[-1])
    assert set(codes) == {code}
    return list(found)


def test_the_version_waits_for_nothing() -> None:
    assert imported([["--version"]], (*HEAVY, "rich")) == []


def test_help_waits_for_nothing() -> None:
    of_each = [[command, "--help"] for command in COMMANDS]
    assert imported([["--help"], *of_each, ["lattice", "build", "--help"]], HEAVY) == []


def test_simple_mistakes_wait_for_nothing() -> None:
    scored = ["-s", sys.executable, "-r", "missing"]
    commands = [
        ["translate", "-i", "missing"],
        ["translate", "-i", "/"],
        ["translate", "--glossary", "missing"],
        ["translate", "--runtime", "gpu"],
        ["translate", "--precision", "fp8"],
        ["translate", "--set", "width"],
        *([name, *given, "-m", "nope"] for name, given in (("translate", []), ("decoders", []), ("evaluate", scored))),
        ["evaluate", *scored],
        ["exactness", "-s", "missing"],
        ["bulk", "missing", "out", "--runtime", "gpu"],
    ]
    assert imported(commands, HEAVY, code=2) == []


def test_greedy_search_imports_nothing_of_other_systems_and_work() -> None:
    assert (
        imported([["translate", "--decoder", "greedy", "--runtime", "eager"]], NOT_FOR_GREEDY, "Good morning.\n") == []
    )


def test_no_decoder_waits_for_the_compiler() -> None:
    """Model folders are compared with their weights on the meta device, whose arithmetic would import it."""
    names = ("greedy", "beam", "sample", "blockwise", "draft-verify", "interleaved", "lattice")
    commands = [["translate", "--decoder", name] for name in names]
    never = ("sympy", "torch._dynamo", "torch._inductor")
    left_out = ("torch._decomp", "torch._refs") if torch.__version__.startswith(TRIED) else ()
    assert imported(commands, (*never, *left_out), "Good morning.\n") == []


def test_what_was_left_out_of_pytorch_comes_when_it_is_asked_for() -> None:
    code = (
        "import sys; from longstride.cli.quick_start import import_torch; import_torch(); import torch; "
        "torch.Generator(); before = 'torch._refs' in sys.modules; "
        "print(before, callable(torch._meta_registrations.register_meta), 'torch._refs' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tried = torch.__version__.startswith(TRIED)
    assert ran.stdout == f"{not tried} True True\n"


def test_the_package_imports_what_it_exports_when_it_is_asked_for() -> None:
    code = (
        "import sys, longstride; before = 'torch' in sys.modules; longstride.load; "
        "print(before, 'torch' in sys.modules, set(longstride.__all__) <= set(dir(longstride)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False True True\n"
