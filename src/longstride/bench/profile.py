"""Where a decoder's time goes: the same sentences unwatched, for the time they take, and watched, stage by stage.

Every sentence is decoded three times: to prepare what is captured or compiled for its shape, then in one go, then with
a stopwatch around each stage. Memory is that of the second pass. Sees decoders through the contract alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch

from longstride.bench.candidate import Candidate
from longstride.bench.machine import MemoryProbe, host_probe
from longstride.bench.profile_watch import Clock, Stopwatch, synchronizer
from longstride.bench.record_parts import MemoryUse, Origin, Stage
from longstride.bench.records import Profile
from longstride.bench.traced_pass import Progress, batches_of, measured_sentences, no_progress
from longstride.bench.workload import Workload
from longstride.contract import Source

COPIED = {"cuda": 2**30, "cpu": 2**28}
"""Bandwidth is measured by copies of so many bytes, far more than any cache holds."""
COPIES = 10


@dataclass(frozen=True)
class Device:
    """What profiles have to know of a device."""

    bandwidth: float | None = None
    """bytes per second"""
    reserved: Callable[[], int] | None = None
    """bytes that PyTorch has taken of it at the highest"""
    host: MemoryProbe = field(default_factory=host_probe)


def device_facts(device: torch.device) -> Device:
    """Measured now, before anything else is there."""
    if device.type != "cuda":
        return Device(copy_bandwidth(device))
    return Device(copy_bandwidth(device), lambda: int(torch.cuda.max_memory_reserved(device)))


def copy_bandwidth(device: torch.device, size: int | None = None, clock: Clock = time.perf_counter_ns) -> float:
    """Bytes per second that a large copy reads and writes, at its best."""
    synchronize = synchronizer(device)
    count = size or COPIED[device.type]
    source, target = (torch.ones(count, dtype=torch.uint8, device=device) for _ in range(2))
    best = None
    for _ in range(COPIES):
        synchronize()
        begun = clock()
        target.copy_(source)
        synchronize()
        took = clock() - begun
        best = took if best is None else min(best, took)
    del source, target
    if device.type == "cuda":
        torch.cuda.empty_cache()
    assert best is not None
    return 2e9 * count / max(1, best)


def profiled_batches(candidate: Candidate, workload: Workload, batch_size: int) -> list[Source]:
    """What is decoded, in order."""
    batches = batches_of(workload, measured_sentences(candidate, workload), batch_size)
    return [workload.source(batch) for batch in batches]


def profile(
    candidate: Candidate,
    watch: Stopwatch,
    workload: Workload,
    batch_size: int,
    origin: Origin,
    device: Device,
    order: int = 0,
    again: bool = False,
    progress: Progress = no_progress,
    clock: Clock = time.perf_counter_ns,
) -> Profile:
    """A record of one candidate whose runner is under this stopwatch, but for the weights that its stages read.

    `again` says that a watched pass has recordings of its own, which have to be made before it.
    """
    sources = profiled_batches(candidate, workload, batch_size)

    def decode(what: str) -> tuple[list[int], list[list[list[int]]]]:
        """Nanoseconds and outputs of every batch."""
        taken, outputs = [], []
        for done, source in enumerate(sources):
            progress(f"{what} {candidate.name}", done, len(sources))
            candidate.synchronize()
            begun = clock()
            found = candidate.decoder.decode(source, candidate.limits).tokens
            candidate.synchronize()
            taken.append(clock() - begun)
            outputs.append(found)
        progress(f"{what} {candidate.name}", len(sources), len(sources))
        return taken, outputs

    decode("preparing")
    probe, host = candidate.memory, device.host
    host.reset()
    if probe is not None:
        probe.reset()
    held = (probe.held() if probe else None, host.held())
    plain, expected = decode("decoding")
    memory = MemoryUse(held[0], probe.peak() if probe else None, held[1], host.peak())
    reserved = device.reserved() if device.reserved else None
    watch.on = True
    try:
        if again:
            decode("preparing once more")
        watch.spent.clear()
        watched, found = decode("profiling")
    finally:
        watch.on = False
    return Profile(
        origin=origin,
        candidate=candidate.name,
        decoder=candidate.decoder.signature,
        model=candidate.model,
        workload=workload.tag,
        batch_size=batch_size,
        sentences=sum(source.rows for source in sources),
        plain_us=tuple(max(1, round(taken / 1000)) for taken in plain),
        watched_us=-(-sum(watched) // 1000),  # up, and stages down: these are never more than the whole
        stages=tuple(
            Stage(name, one.calls, one.nanoseconds // 1000, within=one.within) for name, one in watch.spent.items()
        ),
        bandwidth=device.bandwidth,
        device=candidate.device,
        precision=candidate.precision,
        runtime=candidate.runtime,
        order=order,
        limits=candidate.limits,
        memory=memory,
        reserved=reserved,
        options=dict(candidate.options),
        notes={**candidate.notes, "differing": sum(one != other for one, other in zip(found, expected, strict=True))},
    )


def with_weights(profile: Profile, read: Mapping[str, int]) -> Profile:
    """The same, with the bytes of weights that each stage reads in a call."""
    return replace(profile, stages=tuple(replace(stage, weights=read.get(stage.name)) for stage in profile.stages))
