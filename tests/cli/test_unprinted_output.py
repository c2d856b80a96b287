"""Output that can't be written, or whose encoding lacks a character: what a command has changed is told, and no job is lost."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Pinlater

FACE = "\N{GRINNING FACE}"
NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")


def shell(address: str, script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of bash in which PINLATER is the command."""
    named = os.environ | {"PINLATER_SERVERS": address, "PYTHONUNBUFFERED": ""} | environment
    script = script.replace("PINLATER", " ".join(COMMAND))
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, cwd=folder, env=named)


def without_reader(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command with a pipe as its output, whose reader has gone."""
    theirs, ours = os.pipe()
    os.close(theirs)
    try:
        return subprocess.run(
            [*COMMAND, *arguments],
            stdout=ours,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PINLATER_SERVERS": address},
        )
    finally:
        os.close(ours)


@pytest.mark.parametrize(
    ("script", "unbuffered", "why"),
    [
        ("PINLATER job dequeue QUEUE --limit 5 --ack >&-", "", "standard output is closed: no job was claimed"),
        pytest.param("PINLATER job dequeue QUEUE --limit 5 --ack >/dev/full", "", "due again now", marks=NEEDS_FULL),
        pytest.param(
            "PINLATER job dequeue QUEUE --limit 5 --ack --json >/dev/full", "1", "due again now", marks=NEEDS_FULL
        ),
        (
            "ulimit -f 1; PINLATER job dequeue QUEUE --limit 5 --ack --body-only >out",
            "",
            "File too large; no job is acked",
        ),
        (
            "ulimit -f 1; PINLATER job dequeue QUEUE --limit 5 --ack --body-only >out",
            "1",
            "2 jobs of QUEUE are due again",
        ),
        ("ulimit -f 1; PINLATER job dequeue QUEUE --limit 5 --ack >out", "1", "File too large; no job is acked"),
    ],
)
def test_dequeue_acks_no_job_that_it_could_not_print_and_gives_it_back(
    pinlater: Pinlater, queue: str, tmp_path: Path, script: str, unbuffered: str, why: str
) -> None:
    """Without a buffer, a disk that becomes full takes a part of a write and reports no error."""
    pinlater.ok("job", "enqueue", queue, "--body", "a job", "--body", "b" * 3000)
    done = shell(pinlater.address, script.replace("QUEUE", queue), tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert why.replace("QUEUE", queue) in done.stderr
    counts = [pinlater.ok("job", "count", queue, "--state", state).out.strip() for state in ("pending", "succeeded")]
    assert counts == ["2", "0"]


def test_dequeue_acks_no_job_whose_reader_has_gone(pinlater: Pinlater, queue: str) -> None:
    pinlater.ok("job", "enqueue", queue, "--body", "a job")
    done = without_reader(pinlater.address, "job", "dequeue", queue, "--ack", "--body-only")
    told = f"the output can't be written: its reader has gone; no job is acked: 1 job of {queue} is due again now"
    assert (done.returncode, done.stderr) == (1, f"error: {told}\n")
    assert pinlater.ok("job", "dequeue", queue, "--ack", "--body-only").out == "a job"


def test_tables_and_json_survive_output_that_knows_ascii_only(pinlater: Pinlater, queue: str, tmp_path: Path) -> None:
    pinlater.ok(
        "job", "enqueue", queue, "--body", f"job {FACE}", "--status", "J\N{LATIN SMALL LETTER O WITH DIAERESIS}rg"
    )

    def printed(command: str) -> str:
        script = f"PINLATER {command} && PINLATER {command} --json"
        done = shell(pinlater.address, script, tmp_path, PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")
        text, _, document = done.stdout.partition("{\n")
        assert json.loads("{\n" + document)
        return text

    assert "job \\U0001f600" in printed(f"job peek {queue}")
    assert "J\\xf6rg" in printed(f"job list {queue} --body")
    escaped = json.dumps(f"job {FACE}")
    done = shell(pinlater.address, f"PINLATER job dequeue {queue} --ack --json", tmp_path, PYTHONIOENCODING="ascii")
    assert escaped in done.stdout
    assert pinlater.ok("job", "count", queue, "--state", "succeeded").out.strip() == "1"
    helped = shell(pinlater.address, "PINLATER queue --help", tmp_path, PYTHONIOENCODING="ascii")
    assert (helped.returncode, helped.stderr) == (0, "")


def test_an_enqueue_that_can_not_print_descriptors_says_how_many_jobs_are_stored(
    pinlater: Pinlater, queue: str, tmp_path: Path
) -> None:
    lines = "yes job | head -n 700"
    told = f"{lines} | (ulimit -f 0; PINLATER job enqueue {queue} --lines >out)"
    stopped = shell(pinlater.address, told, tmp_path)
    assert stopped.returncode == 1
    assert stopped.stderr == "error: the output can't be written: File too large; 500 of 700 jobs are stored\n"
    assert pinlater.ok("job", "count", queue).out.strip() == "500"
    gone = without_reader(pinlater.address, "job", "enqueue", queue, "--body", "x", "--json")
    assert json.loads(gone.stderr)["error"] == "the output can't be written: its reader has gone; the job is stored"


def test_an_enqueue_that_is_refused_in_the_middle_says_how_many_jobs_are_stored(pinlater: Pinlater, queue: str) -> None:
    pinlater.ok("queue", "config", queue, "--max-backlog", "600")
    done = pinlater("job", "enqueue", queue, "--lines", stdin=b"job\n" * 700)
    assert done.code == 4
    assert len(done.out.splitlines()) == 500
    assert done.err.rstrip().endswith("; 500 jobs were stored before")


def test_a_token_whose_secret_can_not_be_printed_is_not_made(pinlater: Pinlater, tmp_path: Path) -> None:
    create = "PINLATER token create billing --role produce --tokens tokens.json"
    closed = shell(pinlater.address, f"{create} >&-", tmp_path)
    assert closed.stderr == "error: standard output is closed: no token was made\n"
    assert not (tmp_path / "tokens.json").exists()
    arguments = ["token", "create", "billing", "--role", "produce", "--tokens", str(tmp_path / "tokens.json")]
    unread = without_reader(pinlater.address, *arguments)
    assert unread.stderr == "error: the output can't be written: its reader has gone; no token was made\n"
    assert pinlater.ok(*arguments).out


def test_a_change_whose_result_has_no_reader_says_that_it_was_made(pinlater: Pinlater, queue: str) -> None:
    descriptor = pinlater.ok("job", "enqueue", queue, "--body", "x", "--priority", "3").out.strip()
    moved = without_reader(pinlater.address, "job", "change-priority", descriptor, "--priority", "1")
    assert moved.stderr == "error: the output can't be written: its reader has gone; what was changed stays so\n"
    deleted = without_reader(pinlater.address, "job", "delete", queue, "--state", "pending")
    assert deleted.stderr == "error: the output can't be written: its reader has gone; deleted 1 job\n"
    begun = without_reader(pinlater.address, "bulk", "start", queue, "--action", "delete", "--state", "failed")
    assert "its reader has gone; run " in begun.stderr
    assert without_reader(pinlater.address, "queue", "list").returncode == 0
