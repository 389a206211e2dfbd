"""Nothing leaves the machine: no name is looked up, no connection made, nothing written where telemetry is kept."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import longstride
from longstride.runtime.libraries import SILENT, silently

PACKAGE = Path(longstride.__file__).parent

WATCH = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void note(const char *what) {
    int file = open(getenv("WATCHED"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(file, what, strlen(what)) < 0 || write(file, "\n", 1) < 0) abort();
    close(file);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    note(name ? name : "(no name)");
    return EAI_FAIL;
}

int connect(int number, const struct sockaddr *address, socklen_t length) {
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    if (address->sa_family != AF_UNIX) note("connect");
    return real(number, address, length);
}
"""


@pytest.fixture(scope="module")
def watcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that notes every name that is looked up, and every connection, by whatever language."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler, on Linux")
    folder = tmp_path_factory.mktemp("watcher")
    (folder / "watch.c").write_text(WATCH)
    command = [compiler, "-shared", "-fPIC", "-o", folder / "watch.so", folder / "watch.c", "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "watch.so"


def left_behind(code: str, home: Path, watcher: Path) -> tuple[list[str], list[str]]:
    """What Python code looks up, and the files that it leaves in somebody's home."""
    home.mkdir()
    watched = home.parent / "watched"
    # Where it thinks that it is tested, ONNX Runtime is silent by itself.
    given = {name: value for name, value in os.environ.items() if name not in SILENT and not name.startswith("XDG_")}
    for name in ("CI", "TF_BUILD", "GITHUB_ACTIONS", "ORT_RUNNING_UNIT_TESTS"):
        given.pop(name, None)
    given.update({"HOME": str(home), "LD_PRELOAD": str(watcher), "WATCHED": str(watched)})
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=given, capture_output=True)
    names = watched.read_text().split() if watched.exists() else []
    return names, [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]


def test_decoding_by_onnx_runtime_leaves_no_trace(tmp_path: Path, watcher: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    code = """
        import longstride, time
        assert longstride.load("bundled", runtime="onnx").translate("Good morning.", "greedy")
        time.sleep(1)  # there used to be a thread that looked names up
    """
    assert left_behind(code, tmp_path / "home", watcher) == ([], [])


def test_hugging_face_leaves_no_trace(tmp_path: Path, watcher: Path) -> None:
    pytest.importorskip("transformers")
    code = """
        from longstride.runtime.libraries import package
        package("transformers").MarianConfig
        package("ctranslate2")
    """
    assert left_behind(code, tmp_path / "home", watcher) == ([], [])


def test_what_a_person_set_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    for name in SILENT:
        monkeypatch.setenv(name, "whatever")
    silently("onnxruntime")
    assert {name: os.environ[name] for name in SILENT} == SILENT


def test_there_is_no_other_door() -> None:
    told = {"onnxruntime", "transformers", "huggingface_hub", "ctranslate2", "ray"}
    doors, files = {}, sorted(PACKAGE.rglob("*.py"))
    for path in files:
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
        if found & told:
            doors[str(path.relative_to(PACKAGE))] = found & told
    assert len(files) > 100
    assert doors == {}
