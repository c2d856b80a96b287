"""The way in for clients that stand on Finagle, as the original's do: framed Thrift after Finagle's probe for its own additions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.domain.job import JobState
from pinlater.testing import RealServer
from tests.foreign.recorder import CallRecorder
from tests.foreign.toolchain import maven, need, pinned_class_path, run

pytestmark = pytest.mark.foreign

HERE = Path(__file__).parent / "finagle"
PROBE = b"__can__finagle__trace__v3__"
PRINTS = """\
jobs: 3
claimed: one, 3 of 3 attempts left
claimed: two, 2 of 2 attempts left
claimed: three, 2 of 2 attempts left
claimed then: 0
now: one, state 2, 3 of 3 attempts left, status "queued, done"
now: two, half done, state 0, 1 of 2 attempts left, status "half; failed"
now: three, state 2, 2 of 2 attempts left, status ""
failed: 0
refused: 413 Queue not found: no_such_queue
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["v6", "v20"])
def test_a_client_on_finagle_probes_and_then_works_as_with_the_original(version: str, tmp_path: Path) -> None:
    """6.18.0 is what the original's clients were built with, 20.12.0 a late one."""
    need("javac", "mvn")
    folder, server_folder = tmp_path / "client", tmp_path / "server"
    shutil.copytree(HERE / "src", folder / "src")
    shutil.copy(HERE / version / "Connect.java", folder / "src")
    for name in ("pom.xml", "jars.sha256"):
        shutil.copy(HERE / version / name, folder)
    class_path = pinned_class_path(folder)
    maven("compile", folder)
    server_folder.mkdir()
    with RealServer(server_folder) as server, CallRecorder(server.address) as between:
        scenario = f"java -cp target/classes:{class_path} Scenario {between.address}"
        assert run(scenario, folder, deadline_s=90.0) == PRINTS
        sent = between.messages()
        with Client(server.address) as client:
            scanned = client.scan("old_clients", JobState.PENDING, future=True)
    assert PROBE in sent[0]
    assert [message for message in sent[1:] if PROBE in message] == []
    assert b"createQueue" in sent[1]
    assert [job.custom_status for job in scanned.jobs] == ["half; failed"]
