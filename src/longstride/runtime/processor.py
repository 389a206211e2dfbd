"""What this processor has for integer products, whether they can overflow, and which ONNX operators are fastest on it.

Knows no graph; whether these operators give every row the same wherever it stands is checked by the ONNX runner.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

INTEGER_FEATURES = {
    "i8mm": "int8 matrix products (i8mm)",
    "asimddp": "int8 dot products (asimddp)",
    "avx512_vnni": "int8 dot products (AVX-512 VNNI)",
    "avx_vnni": "int8 dot products (AVX-VNNI)",
    "avx512bw": "AVX-512 without VNNI",
    "avx2": "AVX2 without VNNI",
}
"""Flags as Linux names them, best first."""

EXACT = ("i8mm", "asimddp", "avx512_vnni", "avx_vnni")
"""With one of these, products of bytes are summed in 32 bits, whatever the bytes."""


@dataclass(frozen=True)
class Processor:
    """The part of a processor that integer products depend on."""

    machine: str
    """aarch64, x86_64, ..."""
    flags: frozenset[str]
    """what it has, as Linux names it; empty where nobody can tell"""

    @property
    def arm(self) -> bool:
        """A 64-bit ARM processor."""
        return self.machine.lower() in ("aarch64", "arm64")

    @property
    def x86(self) -> bool:
        """A 64-bit x86 processor."""
        return self.machine.lower() in ("x86_64", "amd64")

    @property
    def saturates(self) -> bool:
        """Two products of an unsigned and a signed byte may be summed in 16 bits, which full-range weights overflow."""
        return not self.arm and not self.flags & set(EXACT)

    @property
    def integers(self) -> str:
        """The best that it has for integer products."""
        return next((INTEGER_FEATURES[flag] for flag in INTEGER_FEATURES if flag in self.flags), "no known features")

    def describe(self) -> str:
        """One phrase for a person, of what ONNX Runtime makes of it."""
        weights = (
            "weights in 7 bits, since sums of two products may overflow" if self.saturates else "weights in 8 bits"
        )
        return f"{self.machine} with {self.integers}; {weights}"


def this_processor(cpuinfo: Path = CPUINFO) -> Processor:
    """The one that runs this; flags from Linux's own list, elsewhere unknown but for Apple's ARM processors."""
    apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    words: set[str] = {"atomics", "asimddp"} if apple else set()
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip().lower() in ("flags", "features"):
                words.update(value.split())
    return Processor(platform.machine(), frozenset(words))


@dataclass(frozen=True)
class Operators:
    """What a builder may draw with; by default what every processor is served well enough by."""

    blockwise: bool = False
    """A step's products are MatMulNBits: one node, which quantizes for itself."""
    by_rows: bool = False
    """Rows are quantized by an operator that is told each one's scale, instead of being divided before."""
    signed: bool = False
    """They are quantized to signed numbers, instead of unsigned ones around 128."""
    whole_norms: bool = False
    """A norm is one node, instead of three that take vector instructions on any processor."""


PLAIN = Operators()

ON_ARM = Operators(blockwise=True, by_rows=True, signed=True)

ON_X86 = Operators(by_rows=True, whole_norms=True)
"""MatMulNBits takes longer there the more rows there are; MatMulInteger, of unsigned by signed, hardly does, while for
signed by signed there is no kernel but a plain loop."""


def operators_for(processor: Processor) -> Operators:
    """Those that were timed on such a processor."""
    if processor.arm:
        return ON_ARM
    return ON_X86 if processor.x86 else PLAIN
