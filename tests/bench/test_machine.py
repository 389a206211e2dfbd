import platform
from pathlib import Path

import pytest
import torch

from longstride.bench.machine import _cpu_name, describe_machine, host_probe


def test_the_machine_is_described() -> None:
    machine = describe_machine(torch.device("cpu"))
    assert machine.device == machine.cpu != ""
    assert machine.threads == torch.get_num_threads()
    assert machine.torch == str(torch.__version__)


def test_host_memory_is_at_least_what_is_held() -> None:
    probe = host_probe()
    probe.reset()
    block = torch.ones(2**22)
    assert probe.peak() >= block.numel() * block.element_size()
    assert probe.held() > 0


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("model name\t: Some Processor\nCPU part\t: 0xd0c\n", "Some Processor"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "Neoverse-N1"),
        ("CPU implementer\t: 0x61\nCPU part\t: 0xd0c\n", platform.processor() or platform.machine()),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xfff\n", platform.processor() or platform.machine()),
    ],
)
def test_the_processor_has_a_name(told: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(told)
    assert _cpu_name(tmp_path / "cpuinfo") == name
