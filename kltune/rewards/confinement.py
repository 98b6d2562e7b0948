"""Run inside a child process before foreign code: what it may use is taken away, for good and for its children.

Stand-alone: it is started as a file, in isolated mode, and imports nothing of kltune. The kernel
does the work: resource limits; no_new_privs; a seccomp filter without sockets, new processes (threads are
allowed: the limits hold for each process, so a second one would double them), signals to others, debugging,
other owners and modes of files, and leaving the process group (which is killed in the end); Landlock
against writing outside the working folder. Where the kernel lacks one of the last two, the rest holds, and
what is missing is said. Reading files is not prevented, nor is the number of files that are written in the
time allowed: the folder goes with the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from typing import Any

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_EPERM = 0x00050000 | errno.EPERM
_ENOSYS = 0x00050000 | errno.ENOSYS
"""What the C library takes for an old kernel: it then uses `clone`, whose flags a filter can read."""
_CLONE_THREAD = 0x10000
_FLAGS_AT = 16
"""Of the first argument (its lower half), in what a filter sees of a call."""
# x86_64 and aarch64: architecture of the audit interface, the numbers of the calls, those of clone and clone3.
_ARCHITECTURES = {
    "x86_64": (0xC000003E, {
        "socket": 41, "socketpair": 53, "ptrace": 101, "kill": 62, "tkill": 200, "tgkill": 234,
        "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "process_vm_readv": 310,
        "process_vm_writev": 311, "pidfd_send_signal": 424, "pidfd_getfd": 438,
        "io_uring_setup": 425, "bpf": 321, "unshare": 272, "setns": 308, "mount": 165,
        "keyctl": 250, "add_key": 248, "request_key": 249, "perf_event_open": 298,
        "setsid": 112, "setpgid": 109, "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452,
        "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "setxattr": 188, "prlimit64": 302,
        "fork": 57, "vfork": 58,
    }, (56, 435)),
    "aarch64": (0xC00000B7, {
        "socket": 198, "socketpair": 199, "ptrace": 117, "kill": 129, "tkill": 130, "tgkill": 131,
        "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "process_vm_readv": 270,
        "process_vm_writev": 271, "pidfd_send_signal": 424, "pidfd_getfd": 438,
        "io_uring_setup": 425, "bpf": 280, "unshare": 97, "setns": 268, "mount": 40,
        "keyctl": 219, "add_key": 217, "request_key": 218, "perf_event_open": 241,
        "setsid": 157, "setpgid": 154, "fchmod": 52, "fchmodat": 53, "fchmodat2": 452,
        "fchown": 55, "fchownat": 54, "setxattr": 5, "prlimit64": 261,
    }, (220, 435)),
}  # fmt: skip
_CAPABILITIES = 0x20080522
"""The third version of their interface."""
_KEPT_CAPABILITIES = 0b110
"""Reading files of others, where an interpreter of somebody else's is run as root; Landlock keeps it from writing."""
_X32 = 0x40000000
_LANDLOCK = (444, 445, 446)
_LANDLOCK_WRITES = 0b1_1111_1111_0010
"""write_file, remove_dir, remove_file, and every make_* of the first version."""
_LANDLOCK_LATER = ((2, 1 << 13), (3, 1 << 14))
"""From that version on: refer, truncate."""


def confine(memory_bytes: int, file_bytes: int, cpu_seconds: int, folder: str) -> list[str]:
    """Give up rights; returns what the kernel could not take, as words."""
    limits = (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
    )
    for kind, most in limits:
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))
    libc: Any = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    lost: list[str] = []
    if not _drop_capabilities(libc):
        lost.append("what this process may do beyond its user's rights is kept")
    if not _forbid_writing(libc, folder):
        lost.append("writing outside its folder is not prevented")
    if not _forbid_calls(libc):
        lost.append("the network, new processes and signals to others are not prevented")
    return lost


def _drop_capabilities(libc: Any) -> bool:
    """Root alone has any. Of them all, seeing the environment of other processes matters: keys lie there."""
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITIES, 0), 8)
    kept = struct.pack("IIIIII", _KEPT_CAPABILITIES, _KEPT_CAPABILITIES, 0, 0, 0, 0)
    now = ctypes.create_string_buffer(24)
    if libc.capget(header, now) != 0:
        return False
    has = struct.unpack("IIIIII", now.raw)
    wanted = struct.unpack("IIIIII", kept)
    data = struct.pack("IIIIII", *(a & b for a, b in zip(has, wanted, strict=True)))
    return libc.capset(header, ctypes.create_string_buffer(data, 24)) == 0


def _forbid_calls(libc: Any) -> bool:
    known = _ARCHITECTURES.get(platform.machine())
    if known is None or sys.maxsize < 2**32:
        return False
    architecture, calls, (clone, clone3) = known
    numbers = sorted(set(calls.values()))
    load_architecture = struct.pack("HBBI", 0x20, 0, 0, 4)
    load_number = struct.pack("HBBI", 0x20, 0, 0, 0)
    program = [
        load_architecture,
        struct.pack("HBBI", 0x15, 1, 0, architecture),  # another architecture: refused
        struct.pack("HBBI", 0x06, 0, 0, _EPERM),
        load_number,
        struct.pack("HBBI", 0x35, len(numbers) + 5, 0, _X32),  # the other numbering of x86
    ]
    for i, number in enumerate(numbers):
        program.append(struct.pack("HBBI", 0x15, len(numbers) + 4 - i, 0, number))
    program += [
        struct.pack("HBBI", 0x15, 5, 0, clone3),
        struct.pack("HBBI", 0x15, 0, 2, clone),
        struct.pack("HBBI", 0x20, 0, 0, _FLAGS_AT),
        struct.pack("HBBI", 0x45, 0, 1, _CLONE_THREAD),  # a thread: allowed, the next; else refused
        struct.pack("HBBI", 0x06, 0, 0, _ALLOW),
        struct.pack("HBBI", 0x06, 0, 0, _EPERM),
        struct.pack("HBBI", 0x06, 0, 0, _ENOSYS),
    ]
    code = ctypes.create_string_buffer(b"".join(program))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    )
    return libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0


def _forbid_writing(libc: Any, folder: str) -> bool:
    create, add_rule, restrict = _LANDLOCK
    version = libc.syscall(create, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    rights = _LANDLOCK_WRITES
    for since, right in _LANDLOCK_LATER:
        if version >= since:
            rights |= right
    attribute = ctypes.create_string_buffer(struct.pack("Q", rights), 8)
    ruleset = libc.syscall(create, attribute, ctypes.c_size_t(8), 0)
    if ruleset < 0:
        return False
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place), 12)
    is_bound = (
        libc.syscall(add_rule, ruleset, 1, rule, 0) == 0 and libc.syscall(restrict, ruleset, 0) == 0
    )
    os.close(place)
    os.close(ruleset)
    return is_bound
