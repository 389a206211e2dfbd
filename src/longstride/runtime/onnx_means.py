"""By which operators a graph makes its integer products and norms: which are fastest differs between processors.

Knows no graph; whether these give every row the same wherever it stands is tried on the machine (onnx_trial).
"""

from __future__ import annotations

from dataclasses import dataclass

from longstride.runtime.processor import Processor


@dataclass(frozen=True)
class Means:
    """What a builder may draw with; by default what every processor is served well enough by."""

    blockwise: bool = False
    """A step's products are MatMulNBits: one node, which quantizes for itself."""
    by_rows: bool = False
    """Rows are quantized by an operator that is told each one's scale, instead of being divided before."""
    signed: bool = False
    """They are quantized to signed numbers, instead of unsigned ones around 128."""
    whole_norms: bool = False
    """A norm is one node, instead of three that take vector instructions on any processor."""


PLAIN = Means()

OF_ARM = Means(blockwise=True, by_rows=True, signed=True)

OF_X86 = Means(by_rows=True, whole_norms=True)
"""MatMulNBits takes longer there the more rows there are; MatMulInteger, of unsigned by signed, hardly does, while for
signed by signed there is no kernel but a plain loop."""


def means_of(processor: Processor) -> Means:
    """Those that were timed on such a processor."""
    if processor.arm:
        return OF_ARM
    return OF_X86 if processor.x86 else PLAIN
