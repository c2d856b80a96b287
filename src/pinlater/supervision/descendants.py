"""A process and its descendants, as a process group of the operating system that ends as a whole.

Weakness: a process that makes a group or a session of its own (a daemon, `start_new_session=True`) leaves the group, and stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

_REAP_S = 1.0
_LOOK_S = 0.01


def lead_group(lifeline: Connection) -> None:
    """Begins a session, and thereby a group, of this process. The group is killed once the parent has ended or closed `lifeline`.

    A session has no terminal, so no program of it waits there for an answer.
    """
    os.setsid()
    if hasattr(
        fcntl, "F_SETSIG"
    ):  # Linux: the kernel kills the group, even while C code of this process holds the interpreter
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_kill_group_after_parent, args=(lifeline, os.getppid()), daemon=True).start()


def _kill_group_after_parent(lifeline: Connection, parent: int) -> None:
    poll = select.poll()
    try:
        poll.register(lifeline, select.POLLIN)
        if hasattr(os, "pidfd_open"):  # a process that the parent forked may hold the other end
            poll.register(os.pidfd_open(parent), select.POLLIN)
        poll.poll()
    except OSError:
        pass  # the parent has ended, or a task has closed the descriptors
    os.killpg(0, signal.SIGKILL)


def kill_group(leader: int, *, waited_for: bool) -> None:
    """Kills the processes that remain in the group of `leader`."""
    if not waited_for or group_exists(leader):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def group_exists(leader: int) -> bool:
    """Returns whether processes remain in the group of `leader`, whose exit was awaited.

    Its number may belong to another process by now, but not while its group has members.
    """
    return not _is_there(os.kill, leader) and _is_there(os.killpg, leader)


def _is_there(kill: Callable[[int, int], None], number: int) -> bool:
    """Returns whether there is something to signal."""
    try:
        kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def reap_group(leader: int) -> None:
    """Waits for the killed processes of the group, for at most a second, if this process adopted them as process 1 of a container.

    The exit of the leader was awaited.
    """
    until_s = time.monotonic() + _REAP_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until_s:
            if os.waitpid(-leader, os.WNOHANG) == (0, 0):
                time.sleep(_LOOK_S)
