"""Shards over the machines of a Ray cluster, by Ray Data: each of its actors holds a model and takes shard after shard.

The input, the folder of the output and the model lie where every machine sees them under the same path; what is sent
are numbers of records. An actor that dies is started again by Ray, here or on another machine, and its shard with it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from longstride.bulk.job import Job, ShardResult, Work, Worker
from longstride.bulk.records import Shard
from longstride.contract import OptionError, WorkError
from longstride.runtime.libraries import silently

LOCAL = "local"
"""A cluster of this machine alone, begun and ended by us."""


@dataclass(frozen=True)
class Cluster:
    """Where shards are done, and by how many."""

    address: str
    workers: int | None
    """None: as many as there is room for"""
    processors: int
    """cores of each worker"""
    gpu: bool | None = None
    """whether a worker gets one; None: where there are any"""

    def __call__(self, job: Job, work: Work, shards: Sequence[Shard]) -> Iterator[ShardResult]:
        """Do shards, in any order."""
        with _connected(self.address, self.workers, self.processors) as ray:
            yield from self._told(ray, job, work, shards)

    def _told(self, ray: Any, job: Job, work: Work, shards: Sequence[Shard]) -> Iterator[ShardResult]:
        there = ray.cluster_resources()
        gpu = there.get("GPU", 0) > 0 if self.gpu is None else self.gpu
        room = int(min(there.get("CPU", 0) // self.processors, there.get("GPU", 0) if gpu else float("inf")))
        if room < (self.workers or 1):
            raise WorkError(
                f"The Ray cluster has room for {room} workers of {self.processors} processors{' and a GPU' * gpu}; "
                f"expected {self.workers or 'at least 1'}."
            )
        workers = min(self.workers or room, len(shards))
        done = ray.data.from_items([asdict(shard) for shard in shards], override_num_blocks=len(shards)).map(
            _Actor,
            fn_constructor_args=(Worker(job, work),),
            compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
            num_cpus=self.processors,
            num_gpus=1 if gpu else None,
        )
        try:
            for row in done.iter_rows():
                yield ShardResult(**json.loads(row["told"]))
        except (ray.exceptions.RayError, OSError) as error:
            told = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
            raise WorkError(f"The Ray cluster failed: {told.strip()} The same command goes on from there.") from error


class _Actor:
    """A worker, as Ray Data calls it: rows are dictionaries."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __call__(self, row: dict[str, int]) -> dict[str, str]:
        """One shard."""
        return {"told": json.dumps(asdict(self._worker(Shard(**row))))}


def check_packages() -> None:
    """Refuse to begin without Ray."""
    try:
        silently("ray.data")
    except ImportError as error:
        raise OptionError(
            f"--cluster expects the package {error.name}, which is not installed here: pip install "
            "'longstride[cluster]'."
        ) from None


@contextmanager
def _connected(address: str, workers: int | None, processors: int) -> Iterator[Any]:
    check_packages()
    ray = silently("ray")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == LOCAL:
            # More workers than cores, where somebody asks for them.
            cores = max(os.cpu_count() or 1, (workers or 1) * processors)
            ray.init(num_cpus=cores, include_dashboard=False, **quiet)
        else:
            ray.init(address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        told = " ".join(str(error).split()).rstrip(".")
        raise WorkError(f"{address}: expected the address of a Ray cluster ({told}).") from error
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield ray
    finally:
        ray.shutdown()
