"""The CPU runner of our own: graphs carried out by a machine in C (machine.c), in fp32 or int8. Needs a C compiler.

One graph serves all shapes of a program. What runners of graphs share is in longstride.runtime.graph_runner. Knows no
system.
"""

from __future__ import annotations

from collections.abc import Hashable

from longstride.contract import GraphSpec, Precision
from longstride.runtime.graph_runner import GraphRunner, Tell
from longstride.runtime.native.builder import NativeBuilder
from longstride.runtime.native.compiling import NoLibraryError, library
from longstride.runtime.native.graph import NativeGraph
from longstride.runtime.native.plan import ExecutionPlan
from longstride.runtime.native.trial import what_is_wrong
from longstride.runtime.processor import Processor

BORDER = 16
"""Tokens that texts are rounded up to: rows of a product go sixteen at a time where there is a unit for matrices."""


class NativeRunner(GraphRunner):
    """Carries programs out by our own machine."""

    name = "native"

    def __init__(
        self,
        precision: Precision = "fp32",
        threads: int | None = None,
        tell: Tell | None = None,
        processor: Processor | None = None,
    ) -> None:
        super().__init__(precision, threads, tell, processor)
        why = what_is_missing(precision, tell)
        if why is not None:
            raise NoLibraryError(why)

    def describe(self) -> str:
        """``native, int8 on 2 threads of x86_64 with int8 dot products (AVX-512 VNNI); weights in 8 bits``"""
        processor = self.processor.describe() if self.precision == "int8" else self.processor.machine
        return f"native, {self.precision} on {self.threads} threads of {processor}"

    def room(self, size: int, least: int = 1) -> int:
        """Texts end at a border, so that a few tables serve all lengths: making one takes as long as an iteration.
        Rows (where one is enough) are as many as are asked for."""
        return size if least == 1 else -(-size // BORDER) * BORDER

    def build(self, name: str, spec: GraphSpec, variant: Hashable) -> NativeGraph:
        """One graph for all shapes."""
        return NativeGraph(spec, ExecutionPlan(NativeBuilder(self.precision == "int8").recording(spec)), self.threads)


def what_is_missing(precision: Precision, tell: Tell | None = None) -> str | None:
    """Why this runtime cannot be had here in this precision, in words that end a sentence; None where it can."""
    try:
        found = library(tell)
    except NoLibraryError as error:
        return str(error)
    if precision == "int8" and not found.has_integer_products():
        return "a processor with dot products of bytes is expected (VNNI, or asimddp on ARM), found none"
    return what_is_wrong(precision == "int8")
