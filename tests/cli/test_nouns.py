"""Commands stand below nouns; what is written otherwise is answered with the command to write."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
from pathlib import Path

import pytest

from pinlater.cli import exits
from pinlater.cli.tree import COMMANDS, INSTEAD
from tests.cli.conftest import COMMAND, Pinlater, every_command

BEFORE_NOUNS = [
    *(
        "ack",
        "backup",
        "cancel",
        "change-priority",
        "check-dequeue",
        "count",
        "cron",
        "delete-jobs",
        "dequeue",
        "enqueue",
    ),
    *("explain", "failures", "hash-password", "import-original", "load", "lookup", "migrate", "peek", "retry-failed"),
    *("run-now", "scan", "settings", "simulate", "version", "workers"),
]
TOP_MAX = 14


def written_instead(error: str) -> list[str]:
    """The words of the command that the error ends with."""
    line = error.removesuffix("\n")
    assert "\n" not in line
    return shlex.split(line.partition("Write: ")[2])


def test_there_are_few_commands_at_the_top() -> None:
    assert len(COMMANDS) <= TOP_MAX


def test_what_is_to_be_written_is_a_command_and_what_it_replaces_is_none() -> None:
    known = {words for words, _ in every_command()} | set(COMMANDS)
    assert set(INSTEAD.values()) <= known
    assert known & set(INSTEAD) == set()
    assert set(BEFORE_NOUNS) <= set(INSTEAD)


@pytest.mark.parametrize("spelling", INSTEAD)
def test_another_spelling_is_answered_with_the_command_and_the_given_arguments(
    offline: Pinlater, spelling: str
) -> None:
    arguments = ["emails", "--body", '{"to":  "it\'s me"}', "--json=x", "*", ""]
    done = offline(*spelling.split(), *arguments)
    shown = ["..."] if spelling == "hash-password" else arguments
    assert (done.code, done.out) == (exits.USAGE, "")
    assert written_instead(done.err) == ["pinlater", *INSTEAD[spelling].split(), *shown]


def test_a_command_without_arguments_is_answered_without_any(offline: Pinlater) -> None:
    assert offline("scan").err == "error: No such command 'scan'. Write: pinlater job list\n"
    assert offline("jobs", "list").err == "error: No such command 'jobs'. Write: pinlater job list\n"


def test_a_wrong_noun_with_an_earlier_spelling_is_answered_in_one_step(offline: Pinlater) -> None:
    assert written_instead(offline("jobs", "scan", "emails").err) == ["pinlater", "job", "list", "emails"]
    assert written_instead(offline("queues", "purge", "emails").err) == ["pinlater", "job", "delete", "emails"]
    assert written_instead(offline("servers", "run").err) == ["pinlater", "serve"]


def test_the_answer_is_a_document_for_a_caller_that_reads_json(offline: Pinlater) -> None:
    assert '"error": "No such command \'scan\'. Write: pinlater job list --json"' in offline("scan", "--json").err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--store", "mysql://root:sesame@db/jobs"),
        ("--set", "redis.password=sesame"),
        ("--set", "redis.password = sesame"),
        ("--config", "two\nlines"),
    ],
)
def test_passwords_and_what_breaks_a_line_are_not_repeated(offline: Pinlater, arguments: tuple[str, ...]) -> None:
    assert (
        offline("migrate", *arguments).err == "error: No such command 'migrate'. Write: pinlater server migrate ...\n"
    )


def test_the_command_to_write_is_not_broken_on_a_narrow_terminal() -> None:
    """It can be copied in one piece."""
    ours, theirs = pty.openpty()
    body = "a body that is longer than the terminal is wide"
    subprocess.run([*COMMAND, "enqueue", "emails", "--body", body], stderr=theirs, check=False, env={"COLUMNS": "40"})
    shown = os.read(ours, 4096).decode().removesuffix("\r\n")
    os.close(ours)
    os.close(theirs)
    assert shown == f"error: No such command 'enqueue'. Write: pinlater job enqueue emails --body '{body}'"


@pytest.mark.parametrize("words", [("worker",), ("worker", "run")])
def test_a_worker_is_run_with_and_without_the_word(
    offline: Pinlater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Unit files and containers hold `pinlater worker MODULE:NAME`, also with options before it."""
    monkeypatch.chdir(tmp_path)
    for arguments in (("no_such:worker",), ("--concurrency", "2", "no_such:worker")):
        assert offline(*words, *arguments).err == "error: no module 'no_such' here or installed\n"
    assert offline(*words, "--queues", "list", "no_such:worker").err == "error: no module 'no_such' here or installed\n"
