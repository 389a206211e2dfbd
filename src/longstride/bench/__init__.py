"""Workload, measurement, records, and the tables and plots rendered from them."""

from longstride.bench.assessment import Progress, assess
from longstride.bench.candidate import Candidate
from longstride.bench.machine import Machine, describe_machine
from longstride.bench.measure import Protocol, measure
from longstride.bench.memory import MemoryProbe, cuda_probe, host_probe
from longstride.bench.records import (
    Distillation,
    Exactness,
    Latency,
    ModelTag,
    Origin,
    Quality,
    Record,
    Training,
    append_records,
    read_records,
)
from longstride.bench.workload import Workload

__all__ = [
    "Candidate",
    "Distillation",
    "Exactness",
    "Latency",
    "Machine",
    "MemoryProbe",
    "ModelTag",
    "Origin",
    "Progress",
    "Protocol",
    "Quality",
    "Record",
    "Training",
    "Workload",
    "append_records",
    "assess",
    "cuda_probe",
    "describe_machine",
    "host_probe",
    "measure",
    "read_records",
]
