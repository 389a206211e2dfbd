"""Self-tests that passed on this machine, remembered beside the compiled kernels in Triton's cache.

A self-test takes most of a second in every new process. Its result depends only on the device, its driver, PyTorch,
Triton and the sources of operations and kernels. A test that passed is not run again until one of them changes. A test
that failed is not remembered: it runs again in the next process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from longstride import ops

MARK = "passed"


def remembered(name: str, device: torch.device, dtype: torch.dtype, test: Callable[[], str]) -> str:
    """Return the reason why a test fails, or an empty string if it passes now or passed before."""
    from triton.runtime.cache import get_cache_manager

    try:
        cache = get_cache_manager(_key(name, device, dtype))
        if cache.get_file(MARK) is not None:
            return ""
    except (OSError, RuntimeError):  # there is no folder that can be written to
        return test()
    reason = test()
    if not reason:
        with suppress(OSError):  # such as a full disk: the test runs again next time
            cache.put("", MARK)
    return reason


def _key(name: str, device: torch.device, dtype: torch.dtype) -> str:
    """Hash everything that a test's result depends on."""
    import triton

    about = [name, str(dtype), torch.__version__, triton.__version__, torch.cuda.get_device_name(device)]
    about += [str(torch.cuda.get_device_capability(device)), str(torch.version.cuda)]
    digest = hashlib.sha256("\n".join(about).encode())
    folder = Path(ops.__file__).parent
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
