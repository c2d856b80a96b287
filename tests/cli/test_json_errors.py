"""With `--json`, each line on standard error is a JSON document, and never a text."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater.cli import exits, notes, watch
from pinlater.client.errors import ServerUnreachable
from tests.cli.conftest import COMMAND, Pinlater, every_command

JOB = "emails:s1:p1:73"
FAILING = {
    "job ack": (JOB, "--timeout", "1200ms"),
    "audit": (),
    "server backup": ("--store", "sqlite:none.db", "copy.db"),
    "bulk list": (),
    "bulk start": ("emails", "--action", "retry"),
    "bulk stop": ("emails", "0123456789abcdef"),
    "bulk undo": ("emails", "0123456789abcdef"),
    "job cancel": (JOB,),
    "job check-dequeue": ("emails",),
    "cluster status": (),
    "job count": ("emails",),
    "worker cron": ("no_such_module:worker",),
    "job delete": ("emails", "--state", "failed"),
    "demo": ("--jobs", "0"),
    "job dequeue": ("emails", "--timeout", "1200ms"),
    "job enqueue": ("emails", "--body", "x", "--timeout", "1200ms"),
    "job explain": (JOB,),
    "job failures": (),
    "server hash-password": (),
    "server import-original": ("--from", "mysql://root@127.0.0.1:1/", "--dry-run", "--retry-for", "0"),
    "bench load": (),
    "job show": (JOB,),
    "server migrate": ("--store", "sqlite:/dev/null/none.db"),
    "job peek": ("emails",),
    "queue config": ("emails",),
    "queue create": ("emails",),
    "queue delete": ("emails", "--no-password"),
    "queue list": (),
    "queue pause": ("emails",),
    "queue resume": ("emails",),
    "queue unblock": ("emails", "--key", "k"),
    "queue stats": ("--watch",),
    "job retry": ("emails",),
    "job run-now": (JOB,),
    "job change-priority": (JOB, "--priority", "1"),
    "job list": ("emails",),
    "server settings": ("--set", "jobs.claim_timeout_ms=soon"),
    "shards drain": ("1", "--shards", "none.json"),
    "shards list": ("--shards", "none.json"),
    "shards remove": ("1", "--shards", "none.json"),
    "shards status": ("--shards", "none.json"),
    "bench simulate": ("--fault", "none@1m"),
    "token create": ("web", "--role", "work", "--tokens", "/dev/null/tokens.json"),
    "token list": ("--tokens", "none.json"),
    "token limit": ("web", "--max-polls", "1", "--tokens", "none.json"),
    "token revoke": ("web", "--tokens", "none.json"),
    "server version": ("--server", "127.0.0.1:1"),
    "worker list": (),
}
WAITING = ("job ack", "job dequeue", "job enqueue")


def with_json() -> Iterator[str]:
    """The commands that have the option."""
    for words, command in every_command():
        if any("--json" in param.opts for param in command.params):
            yield words


def documents(lines: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines.splitlines()]
    assert all(isinstance(each, dict) for each in found)
    return found


def test_each_command_with_json_is_tested() -> None:
    assert set(with_json()) == set(FAILING)


@pytest.mark.parametrize("command", FAILING)
def test_a_command_that_fails_writes_json_documents_on_standard_error(
    offline: Pinlater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = offline(*command.split(), *FAILING[command], "--json", stdin=b"two\nlines\n")
    *before, last = documents(done.err)
    assert (last["exit_code"], bool(last["error"])) == (done.code, True)
    assert [list(each) for each in before] == ([["note"]] if command in WAITING else [])
    assert done.out == "" or json.loads(done.out)


def test_output_that_cant_be_written_and_warnings_of_the_client_are_json() -> None:
    environment = os.environ | {"PINLATER_SERVER": "a:1", "PINLATER_SERVERS": ""}
    command = [*COMMAND, "server", "version", "--json"]
    with Path("/dev/full").open("w") as full:
        unread = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    command += ["--server", "127.0.0.1:9010"]
    warned = subprocess.run(command, capture_output=True, check=False, text=True, env=environment)
    assert documents(unread.stderr) == [
        {"error": "the output can't be written: No space left on device", "detail": None, "exit_code": exits.REFUSED}
    ]
    note = documents(warned.stderr)[0]["note"]
    assert note.startswith("PINLATER_SERVER is not read")


@pytest.mark.usefixtures("as_json")
def test_an_answer_that_does_not_come_while_watching_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter([None, ServerUnreachable("a is down"), ServerUnreachable("a is down"), KeyboardInterrupt()])

    async def ask() -> None:
        if (found := next(answers)) is not None:
            raise found

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(watch.show_answers(ask, lambda _: None, 1))
    [note] = documents(capsys.readouterr().err)
    assert note["note"].endswith("no answer, still watching: a is down")


@pytest.mark.usefixtures("as_json")
def test_warnings_and_tracebacks_have_names_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    notes.warn("the servers do not agree")
    exits.tracebacks(True)
    exits.show_traceback(ValueError("no\nsuch"))
    exits.tracebacks(False)
    warning, trace = documents(capsys.readouterr().err)
    assert warning == {"warning": "the servers do not agree"}
    assert trace["traceback"].splitlines()[-2:] == ["ValueError: no", "such"]
