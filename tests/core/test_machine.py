"""The package runs on Linux and macOS: what only Linux has is used behind a test for it, and Windows is refused."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import camp
from camp.bench.executors.local import LocalExecutor
from camp.core.machine import available_cores, has_ended

SOURCES = sorted(Path(camp.__file__).parent.rglob("*.py"))
LINUX_ONLY = {
    "os": {
        *("sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_setparam", "sched_getscheduler"),
        *(
            "sched_setscheduler",
            "sched_rr_get_interval",
            "copy_file_range",
            "splice",
            "memfd_create",
            "eventfd",
        ),
        *("eventfd_read", "eventfd_write", "pidfd_open", "getrandom", "posix_fadvise", "posix_fallocate"),
        *("fdatasync", "getxattr", "setxattr", "listxattr", "removexattr", "pipe2", "getresuid", "getresgid"),
        *(
            "setresuid",
            "setresgid",
            "unshare",
            "setns",
            "preadv2",
            "pwritev2",
            "O_TMPFILE",
            "O_PATH",
            "O_DIRECT",
        ),
        *("O_NOATIME", "O_LARGEFILE", "O_RSYNC", "POSIX_FADV_DONTNEED", "SCHED_BATCH", "SCHED_IDLE"),
        *("P_PIDFD", "RWF_NOWAIT", "GRND_NONBLOCK", "MFD_CLOEXEC", "EFD_CLOEXEC", "XATTR_CREATE"),
    },
    "mmap": {"MAP_POPULATE", "MADV_HUGEPAGE", "MADV_MERGEABLE", "MADV_REMOVE", "MADV_DONTFORK"},
    "signal": {"SIGRTMIN", "SIGRTMAX", "SIGPWR", "SIGSTKFLT", "sigtimedwait", "sigwaitinfo"},
    "resource": {"prlimit", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_SIGPENDING"},
    "socket": {"AF_NETLINK", "AF_PACKET", "SO_BINDTODEVICE", "SOCK_CLOEXEC", "SOCK_NONBLOCK"},
    "errno": {"EBADFD", "ECOMM", "EREMOTEIO", "EUCLEAN", "ENOMEDIUM"},
}
"""Names that modules of Python have on Linux and not on macOS."""


def linux_only(tree: ast.AST) -> list[str]:
    """Names that are used, except in a function that asks `hasattr` for them first."""
    found, asked = [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
            asked.add(ast.literal_eval(node.args[1]))
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr in LINUX_ONLY.get(node.value.id, ())
        ):
            found.append(f"{node.value.id}.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module in LINUX_ONLY:
            found += [
                f"{node.module}.{name.name}" for name in node.names if name.name in LINUX_ONLY[node.module]
            ]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] if node.value.startswith(("/proc", "/sys/", "/dev/shm")) else []
    return [name for name in found if name.partition(".")[2] not in asked]


def test_nothing_needs_linux() -> None:
    used = {path.name: names for path in SOURCES if (names := linux_only(ast.parse(path.read_text())))}
    assert used == {"machine.py": ["/proc"]}  # which has a test without it


def test_processes_where_the_system_does_not_describe_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not has_ended(os.getpid())
    monkeypatch.setattr("camp.core.machine.PROCESSES", tmp_path)
    assert not has_ended(os.getpid())


def test_the_search_finds_what_it_looks_for() -> None:
    assert linux_only(ast.parse("import os\nos.sched_getaffinity(0)")) == ["os.sched_getaffinity"]
    assert linux_only(ast.parse("from os import fdatasync\nx = '/proc/self'")) == [
        "os.fdatasync",
        "/proc/self",
    ]
    assert not linux_only(ast.parse("if hasattr(os, 'splice'): os.splice()"))


def test_cores_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert available_cores() == 6
    assert LocalExecutor(jobs=2).threads == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == LocalExecutor(jobs=2).threads == 1


def test_windows_is_refused_in_a_sentence() -> None:
    code = "import sys; sys.platform = 'win32'; import camp"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: CAMP runs on Linux and macOS, and not on Windows")
