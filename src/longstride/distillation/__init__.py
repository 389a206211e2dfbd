"""A teacher decodes a corpus into a new one, shard by shard, with a manifest. Knows teachers only by the contract."""

from longstride.distillation.degenerate import Reason, Rules, longest_loop, longest_run, why_degenerate
from longstride.distillation.distill import Outcome, Progress, distill, distill_lines
from longstride.distillation.options import DistillOptions, ShardRange
from longstride.distillation.teacher import Teacher

__all__ = [
    "DistillOptions",
    "Outcome",
    "Progress",
    "Reason",
    "Rules",
    "ShardRange",
    "Teacher",
    "distill",
    "distill_lines",
    "longest_loop",
    "longest_run",
    "why_degenerate",
]
