"""Shards one after another in this process, or by the workers of a Ray cluster; those that fail are tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from longstride.bulk.job import Job, ShardResult, Work, Worker
from longstride.bulk.records import Shard
from longstride.contract import WorkError

Run = Callable[[Job, Work, Sequence[Shard]], Iterator[ShardResult]]
"""Does shards, in any order, and tells of each when it is done"""


def here(job: Job, work: Work, shards: Sequence[Shard]) -> Iterator[ShardResult]:
    """In this process."""
    return map(Worker(job, work), shards)


def run(job: Job, work: Work, way: Run, tries: int, tell: Callable[[ShardResult], None]) -> None:
    """Do all shards that are left; one that fails is tried `tries` times, after all others."""
    left = job.left()
    for attempt in range(1, tries + 1):
        failed: dict[int, ShardResult] = {}
        for told in way(job, work, left) if left else ():
            if told.error:
                failed[told.shard] = told
                if not told.again:
                    break
            else:
                tell(told)
        left = job.left()
        last = next((told for told in failed.values() if not told.again), None)
        if last is None and left and attempt == tries:
            last = failed.get(left[0].number, ShardResult(left[0].number, error="its worker was lost"))
        if last is not None:
            raise WorkError(
                f"{len(left)} of {len(job.shards)} shards were not done, shard {last.shard} because: "
                f"{last.error.rstrip('.')}; the same command goes on from there."
            )
        if not left:
            return
