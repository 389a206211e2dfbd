"""The CPU backend of our own: graphs carried out by compiled C (source/machine.c), in fp32 or int8.

One graph serves all shapes of a program. What runners of graphs share is in longstride.runtime.graph_runner. Knows no
system.
"""

from __future__ import annotations

from collections.abc import Hashable

from longstride.contract import GraphSpec, Precision
from longstride.runtime.graph_runner import GraphRunner, Tell
from longstride.runtime.native.builder import NativeBuilder
from longstride.runtime.native.graph import NativeGraph
from longstride.runtime.native.library import NoLibraryError, library
from longstride.runtime.native.plan import ExecutionPlan
from longstride.runtime.native.self_test import self_test
from longstride.runtime.processor import Processor

BORDER = 16
"""Tokens that texts are rounded up to: rows of a product go sixteen at a time where there is a unit for matrices."""


class NativeRunner(GraphRunner):
    """Carries programs out by compiled C."""

    name = "native"
    shape_invariant = True  # every sum has one order, whatever stands beside it (tests/conformance)

    def __init__(
        self,
        precision: Precision = "fp32",
        threads: int | None = None,
        tell: Tell | None = None,
        processor: Processor | None = None,
    ) -> None:
        super().__init__(precision, threads, tell, processor)
        check_supported(precision)

    def describe(self) -> str:
        """``native, int8 on 2 threads of x86_64 with int8 dot products (AVX-512 VNNI); weights in 8 bits``"""
        integers = ""
        if self.precision == "int8":
            integers = f" with {self.processor.integers}; weights in {library().weight_levels().bit_length() + 1} bits"
        return f"native, {self.precision} on {self.threads} threads of {self.processor.machine}{integers}"

    def round_up(self, size: int, least: int = 1) -> int:
        """Texts end at a border, so that a few tables serve all lengths: making one takes as long as an iteration.
        Rows (where one is enough) are as many as are asked for."""
        return size if least == 1 else -(-size // BORDER) * BORDER

    def build(self, name: str, spec: GraphSpec, variant: Hashable) -> NativeGraph:
        """One graph for all shapes."""
        return NativeGraph(spec, ExecutionPlan(NativeBuilder(self.precision == "int8").recording(spec)), self.threads)


def check_supported(precision: Precision) -> None:
    """Say why this runtime cannot be had here in this precision, where that is so."""
    if precision == "int8" and not library().has_integer_products():
        raise NoLibraryError(
            "The runtime native expects products of bytes for int8 (AVX2 on x86, NEON on ARM), found neither here."
        )
    if wrong := self_test(precision == "int8"):
        raise NoLibraryError(f"The runtime native failed its self-test in {precision}: {wrong}.")
