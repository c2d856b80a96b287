"""What goes over the control channel between a supervisor and a process."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from pinlater.server.config.load import load
from pinlater.server.config.settings import Settings
from pinlater.server.main.processes import child
from pinlater.server.main.processes.control_channel import (
    Failed,
    OtherVersion,
    ProcessPlan,
    from_child,
    plan_frame,
    receive_plan,
)
from pinlater.server.main.socket_folder import SocketFolder


def test_settings_arrive_as_they_are(tmp_path: Path) -> None:
    loaded = load(None, {}, {"store": "mysql://me:pass%20word@db:3307/jobs", "jobs.max_backlog": 7, "processes": 3})
    plan = ProcessPlan(2, replace(loaded.settings, queue_limits_file=tmp_path / "limits"), SocketFolder("sockets"))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(plan_frame(plan))
        assert receive_plan(theirs) == plan


def test_a_parent_that_is_gone_is_noticed_at_once() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(plan_frame(ProcessPlan(0, Settings(), SocketFolder("")))[:20])
        ours.close()
        with pytest.raises(EOFError):
            receive_plan(theirs)


def test_a_process_of_a_newer_program_says_that_the_service_must_be_restarted() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(plan_frame(ProcessPlan(0, Settings(), SocketFolder("")), "0.0.1"))
        assert child.run(os.dup(theirs.fileno())) == child.FAILED
        theirs.close()
        said = from_child.decode(ours.recv(65_536)[4:])
        assert isinstance(said, Failed)
        assert "restart the service" in said.reason
    assert issubclass(OtherVersion, Exception)
