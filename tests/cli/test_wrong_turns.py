"""Messages as a newcomer reads them: the cause comes first, and the remedy is right."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from pinlater.cli import exits
from pinlater.domain.access import digest_of
from tests.cli.conftest import RUN_DELETES, Pinlater

GROUP = "0123456789abcdef"


def test_a_password_is_no_argument_and_is_not_repeated(offline: Pinlater) -> None:
    done = offline("server", "hash-password", "open-sesame")
    assert (done.code, "open-sesame" in done.err) == (exits.USAGE, False)
    assert "A password is no argument" in done.err


def test_what_does_not_exist_is_told_by_an_answer_that_does_not_need_it(pinlater: Pinlater, queue: str) -> None:
    job = "emials:s1:p1:73"
    for command in (("job", "show", job), ("job", "explain", job), ("job", "explain", job, f"{queue}:s1:p1:73")):
        note, error = pinlater(*command).err.splitlines()
        assert note == "note: there is no queue emials (`pinlater queue list` shows the queues)"
        assert error.startswith("error: no such job: ")
    assert pinlater("job", "show", f"{queue}:s1:p1:73").err == f"error: no such job: {queue}:s1:p1:73\n"
    assert pinlater("audit", f"{queue}_no").err.startswith(f"note: there is no queue {queue}_no (")
    muted = pinlater("job", "failures", queue, "--mute", GROUP)
    assert (muted.code, muted.err) == (0, f"note: {queue} has no group {GROUP} now\n")


def test_a_delay_of_more_than_a_year_is_refused_by_each_command_that_has_one(pinlater: Pinlater, queue: str) -> None:
    """And jobs are as they were."""
    held, failed = [pinlater.ok("job", "enqueue", queue, "--body", "x").out.strip() for _ in range(2)]
    pinlater.ok("job", "dequeue", queue, "--limit", "2")
    pinlater.ok("job", "ack", failed, "--failed", "--final")
    for arguments in (
        ("job", "enqueue", queue, "--body", "x", "--delay", "367d"),
        ("job", "enqueue", queue, "--body", "x", "--at", "2999-01-01"),
        ("job", "ack", held, "--failed", "--retry-delay", "367d"),
        ("job", "retry", queue, "--delay", "367d"),
        ("job", "retry", "--descriptor", failed, "--delay", "367d"),
    ):
        done = pinlater(*arguments)
        assert done.code != 0, arguments
        assert "a job waits for a year (366 days) at most" in done.err, arguments


def test_a_mute_says_in_a_line_what_it_did(pinlater: Pinlater, queue: str) -> None:
    """The list of all groups is `failures` without --mute; with --json it stays the answer."""
    [line] = pinlater("job", "failures", queue, "--mute", GROUP, "--for", "1h").out.splitlines()
    assert re.fullmatch(rf"muted {GROUP} of {queue} until \d{{4}}-.*Z", line)
    assert pinlater("job", "failures", queue, "--unmute", GROUP).out == f"unmuted {GROUP} of {queue}\n"
    assert pinlater("job", "failures", queue, "--unmute", GROUP, "--json").json == {"groups": [], "incomplete": False}


def test_a_group_of_failures_that_the_queue_does_not_have_is_told_as_such(pinlater: Pinlater, queue: str) -> None:
    """Else a mistyped name looks like a group without failed jobs."""
    note = f"note: {queue} has no group of failures {GROUP} (`pinlater job failures {queue}` shows its groups)\n"
    for command in (("job", "retry", queue), ("job", "delete", queue, "--state", "failed"), ("job", "list", queue)):
        pinlater.ok(*command, "--group", GROUP, says=(RUN_DELETES if "delete" in command else "") + re.escape(note))


def test_a_group_that_has_no_failed_job_any_more_gets_no_such_note(pinlater: Pinlater, queue: str) -> None:
    job = pinlater.ok("job", "enqueue", queue, "--body", "x").out.strip()
    pinlater.ok("job", "dequeue", queue)
    pinlater.ok("job", "ack", job, "--failed", "--final", "--error-text", "no such address")
    [group] = pinlater.ok("job", "failures", queue, "--json").json["groups"]
    retry = ("job", "retry", queue, "--group", group["name"])
    assert pinlater(*retry).out == "retried 1 job; it is due now\n"
    again = pinlater(*retry)
    assert (again.out, again.err) == ("retried 0 jobs\n", "")


def test_a_server_that_is_away_is_told_with_the_options_of_the_command(offline: Pinlater) -> None:
    tool = offline("client-tool", "--host", "127.0.0.1", "--port", "1", "--mode", "get_queue_names")
    assert (tool.code, "--host and --port name another server" in tool.err) == (exits.UNREACHABLE, True)
    assert "--server or PINLATER_SERVERS name other servers" in offline("queue", "list").err


# --- tokens ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tokens(offline: Pinlater, tmp_path: Path) -> Path:
    """A file with one token."""
    path = tmp_path / "tokens.json"
    offline.ok("token", "create", "web", "--role", "read", "--tokens", str(path))
    return path


def test_the_secret_goes_to_a_new_file_that_only_its_owner_reads(offline: Pinlater, tokens: Path) -> None:
    made = tokens.with_name("work.token")
    command = ("token", "create", "work", "--role", "work", "--tokens", str(tokens), "--output", str(made))
    before = os.umask(0)
    try:
        done = offline.ok(*command)
    finally:
        os.umask(before)
    secret = made.read_text().strip()
    assert done.out == f"token work is in {tokens}, and its secret in {made}\n"
    assert (stat.S_IMODE(made.stat().st_mode), digest_of(secret) in tokens.read_text()) == (0o600, True)


def test_a_token_that_is_refused_leaves_no_file(offline: Pinlater, tokens: Path) -> None:
    """A shell that sends the output to a file empties it first."""
    made = tokens.with_name("web.token")
    command = ("token", "create", "web", "--role", "read", "--tokens", str(tokens), "--output", str(made))
    done = offline(*command)
    assert (done.code, "has a token web already" in done.err) == (exits.REFUSED, True)
    assert not made.exists()


def test_no_file_is_overwritten_and_then_no_token_is_made(offline: Pinlater, tokens: Path) -> None:
    kept, before = tokens.with_name("kept.token"), tokens.read_text()
    kept.write_text("precious\n")
    for path, why in ((kept, "exists already"), (tokens.with_name("no") / "a.token", "No such file")):
        command = ("token", "create", "a", "--role", "read", "--tokens", str(tokens), "--output", str(path))
        done = offline(*command)
        assert (done.code, why in done.err, "no token was made" in done.err) == (exits.REFUSED, True, True)
    assert (kept.read_text(), tokens.read_text()) == ("precious\n", before)


def test_a_folder_that_is_missing_is_told_as_such(offline: Pinlater, tmp_path: Path) -> None:
    path = tmp_path / "no" / "tokens.json"
    done = offline("token", "create", "a", "--role", "read", "--tokens", str(path))
    assert (done.code, done.err) == (
        exits.REFUSED,
        f"error: {path} can't be changed: there is no folder {path.parent}\n",
    )


def test_the_json_names_the_file_instead_of_the_secret(offline: Pinlater, tokens: Path) -> None:
    made = tokens.with_name("work.token")
    told = offline.ok(
        "token", "create", "work", "--role", "work", "--tokens", str(tokens), "--output", str(made), "--json"
    ).json  # fmt: skip
    assert (told["output"], "token" in told, told["name"]) == (str(made), False, "work")


def test_a_missing_file_of_tokens_is_not_taken_for_a_missing_token(offline: Pinlater, tokens: Path) -> None:
    missing = str(tokens.with_name("none.json"))
    for command in (("list",), ("revoke", "web"), ("limit", "web", "--max-polls", "1")):
        done = offline("token", *command, "--tokens", missing)
        assert (done.code, done.err[:50]) == (exits.REFUSED, f"error: {missing} does not exist"[:50])
        assert "does not exist: `pinlater token create` makes it" in done.err
    done = offline("token", "revoke", "wbe", "--tokens", str(tokens))
    assert done.err == f"error: {tokens} has no token wbe; it has web\n"
