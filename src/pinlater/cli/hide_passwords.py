"""Removes passwords from what `ps` shows about this process.

Every user of the machine can read a process's command line. If an operator put a password there all the same, this overwrites its
characters in the memory from which the kernel reads them. Weakness: for some tens of milliseconds after the start they can be read; so
the docs recommend a file or the environment.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_SECRETS = (
    re.compile(rb"(?<![^\0=])(?:mysql|rediss?)://[^\0@:/]*:(?P<secret>[^\0]*)@", re.IGNORECASE),
    re.compile(rb"(?<=[\0=])\s*(?:--)?(?:(?:mysql|redis)[._-](?:sentinel[._-])?password)\s*=(?P<secret>[^\0]+)"),
)
# In /proc/self/stat, counted from 0 after the name, which is in brackets: where the arguments begin and end.
_ARGUMENTS_BEGIN, _ARGUMENTS_END = 45, 46


def holds_password(arguments: Sequence[str]) -> bool:
    """Returns whether one of these arguments has a password in it."""
    line = b"\0".join([b"", *(argument.encode("utf-8", "surrogateescape") for argument in arguments)])
    return any(pattern.search(line) for pattern in _SECRETS)


def hide_passwords() -> None:
    """Writes x over each. The program's own arguments stay as they are. Does nothing if there is no /proc that tells where."""
    try:
        line = Path("/proc/self/cmdline").read_bytes()
        fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        begin, end = int(fields[_ARGUMENTS_BEGIN]), int(fields[_ARGUMENTS_END])
    except (OSError, ValueError, IndexError):
        return
    if sys.platform != "linux" or not begin or end - begin != len(line):
        return
    for pattern in _SECRETS:
        for found in pattern.finditer(line):
            start, length = found.start("secret"), len(found["secret"])
            ctypes.memset(begin + start, ord("x"), length)
