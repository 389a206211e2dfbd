import torch

from longstride.bench.machine import describe_machine, host_probe


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
