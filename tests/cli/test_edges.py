"""Usage errors, unreachable servers, missing extras, and the words of options; no server needed."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
import typer

from pinlater.cli import exits, notes, options, output
from pinlater.cli.call import ServerCall
from pinlater.cli.commands.demo import expected_of
from pinlater.cli.commands.job.filtered import change_found
from pinlater.cli.tree import COMMANDS, Leaf
from pinlater.client import ClaimedJob, JobFilter, JobInfo, JobState, Scanned, errors
from pinlater.extras import install_line
from pinlater.wire.wrong_port import TLS_PORT
from tests.cli.conftest import Pinlater


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("5s", 5.0), ("500ms", 0.5), ("2m", 120.0), ("1.5", 1.5), ("3", 3.0), ("1e1", 10.0)]
)
def test_a_timeout_is_a_duration_or_a_number_of_seconds(timeout: str, seconds: float) -> None:
    assert options.timeout_s(timeout) == seconds


@pytest.mark.parametrize("command", ["list", "delete"])
def test_the_help_names_the_states_without_folding_a_word(
    offline: Pinlater, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = offline.ok("job", command, "--help").out
    assert "STATE" in shown
    assert "<pending" not in shown
    for state in options.State:
        assert state.value in shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stderr", "in_json", "lines"),
    [
        (io.StringIO(), False, ["error: a shard is unreachable, and its jobs are not counted"]),
        (Terminal(), False, ["error: a shard is unreachable, and its", "jobs are not counted"]),
        (
            Terminal(),
            True,
            ['{"error": "a shard is unreachable, and its jobs are not counted", "detail": null, "exit_code": 4}'],
        ),
    ],
)
def test_errors_wrap_at_words_on_a_terminal_unless_they_are_json(
    monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, in_json: bool, lines: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", stderr)
    notes.use_json(in_json)
    try:
        exits.write_error("a shard is unreachable, and its jobs are not counted", exits.BUSY)
    finally:
        notes.use_json(False)
    assert stderr.getvalue().splitlines() == lines


@pytest.mark.parametrize(
    ("words", "usage", "code"),
    [
        ("", "pinlater [OPTIONS] COMMAND", 2),
        ("queue", "pinlater queue [OPTIONS] COMMAND", 2),
        ("--help", "pinlater [OPTIONS] COMMAND", 0),
        ("worker --help", "pinlater worker [OPTIONS] COMMAND | MODULE:NAME", 0),
        ("job enqueue -h", "pinlater job enqueue [OPTIONS] {QUEUE}", 0),
    ],
)
def test_help_is_shown_where_nothing_is_asked(offline: Pinlater, words: str, usage: str, code: int) -> None:
    done = offline(*words.split())
    assert (done.code, f"Usage: {usage}" in done.out + done.err) == (code, True)


@pytest.mark.parametrize(
    "arguments",
    [("job", "count", "q"), ("queue", "list"), ("bench", "load"), ("server", "version", "-s", "127.0.0.1:1")],
)
def test_an_unreachable_server_gives_one_line_and_exit_code_3(offline: Pinlater, arguments: tuple[str, ...]) -> None:
    done = offline(*arguments)
    assert (done.code, done.err) == (
        3,
        "error: Server 127.0.0.1:1 can't be reached: Connection refused "
        "(is `pinlater serve` running there? --server or PINLATER_SERVERS name other servers)\n",
    )


@pytest.mark.parametrize(
    "arguments", [("job", "enqueue", "q", "--body", "x"), ("job", "dequeue", "q"), ("job", "ack", "q:s1:p1:1")]
)
def test_commands_that_scripts_work_jobs_with_wait_for_the_server_until_their_timeout(
    offline: Pinlater, arguments: tuple[str, ...]
) -> None:
    began = time.monotonic()
    done = offline(*arguments, "--timeout", "1500ms")
    assert time.monotonic() - began > 1.4
    assert (done.code, done.out) == (exits.UNREACHABLE, "")
    note, error = done.err.splitlines()
    assert note == "note: Server 127.0.0.1:1 can't be reached: Connection refused; trying until --timeout 1.5s"
    assert error.startswith(f"error: No server could be reached within 1.5 s for {arguments[1]} on queue q; ")


def test_version_needs_no_server(offline: Pinlater) -> None:
    assert offline.ok("server", "version").out.startswith("pinlater ")
    assert offline.ok("--version").out.startswith("pinlater ")


def test_a_missing_extra_is_said_with_what_to_install(offline: Pinlater, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(_: str) -> None:
        raise ModuleNotFoundError("No module named 'uvloop'", name="uvloop")

    monkeypatch.setattr("pinlater.cli.groups.import_module", lacking)
    for words in (("serve",), ("server", "settings"), ("server", "migrate")):
        done = offline(*words, "--whatever", "x")
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert install_line("server") in done.err


def test_a_bug_is_one_line_unless_its_traceback_is_wanted(offline: Pinlater, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        """Fails."""
        raise RuntimeError("oops")

    monkeypatch.setattr(import_module("pinlater.cli.commands.server.version"), "version", broken)
    plain = offline("server", "version")
    assert (plain.code, plain.err.count("\n")) == (exits.BUG, 1)
    assert "RuntimeError: oops" in plain.err
    full = offline("--traceback", "server", "version")
    assert "Traceback (most recent call last)" in full.err
    offline("server", "version", "--help")


@pytest.mark.parametrize(
    ("fails", "code"), [("raise RuntimeError('oops')", exits.BUG), ("import package_that_is_missing", exits.REFUSED)]
)
@pytest.mark.parametrize("arguments", [("about-to-fail",), ("about-to-fail", "--help"), ("--help",)])
def test_a_command_that_fails_while_it_is_imported_shows_its_traceback_where_that_is_wanted(
    offline: Pinlater,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fails: str,
    code: int,
    arguments: tuple[str, ...],
) -> None:
    """Commands are imported before the program's own options have taken effect; --traceback must have."""
    (tmp_path / "about_to_fail.py").write_text(f"def about_to_fail(): ...\n\n\n{fails}\n")
    monkeypatch.setattr(
        import_module("pinlater.cli.commands"),
        "__path__",
        [str(tmp_path), *import_module("pinlater.cli.commands").__path__],
    )
    monkeypatch.setitem(COMMANDS, "about-to-fail", Leaf("about_to_fail:about_to_fail"))
    plain, full = offline(*arguments), offline("--traceback", *arguments)
    assert "Traceback" not in plain.err
    if "--help" in arguments and code == exits.REFUSED:  # the help says what is missing, and is no failure
        assert (plain.code, full.code) == (exits.OK, exits.OK)
        return
    assert (plain.code, full.code) == (code, code)
    assert plain.err.count("\n") == 1
    assert "Traceback (most recent call last)" in full.err
    assert "about_to_fail.py" in full.err
    assert fails in full.err


def test_an_interrupt_has_its_own_exit_code(offline: Pinlater, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        """Is interrupted."""
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("pinlater.cli.commands.server.version"), "version", interrupted)
    assert offline("server", "version").code == exits.INTERRUPTED


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("2030-01-31T12:00:00", 1_896_091_200_000),
        ("2030-01-31T13:00:00+01:00", 1_896_091_200_000),
        ("2030-01-31T00:00Z", 1_896_048_000_000),
        ("2030-01-31", 1_896_048_000_000),
        ("1896048000000", 1_896_048_000_000),
    ],
)
def test_a_time_is_iso_and_in_utc_unless_it_names_a_zone_or_milliseconds(text: str, moment_ms: int) -> None:
    assert options.moment_ms(text) == moment_ms


@pytest.mark.parametrize("text", ["2020", "20300131", "0", "1896048000", "9" * 16, "9" * 40, "tomorrow", "", "-1"])
def test_an_implausible_time_is_refused_with_the_accepted_forms(text: str) -> None:
    """`--at 2020` was two seconds after 1970; `20300131` is a date to ISO 8601, and 5.6 hours after 1970 as milliseconds."""
    with pytest.raises(typer.BadParameter, match=r"is not a time.* write 2030-01-31T12:00:00Z, 2030-01-31, now, or"):
        options.moment_ms(text)


def test_now_is_a_time() -> None:
    before = time.time_ns() // 1_000_000
    assert before - 1 <= (options.moment_ms("now") or 0) <= time.time_ns() // 1_000_000 + 1


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--console-port", "--set console_port=VALUE"),
        ("--jobs-claim-timeout-ms", "--set jobs.claim_timeout_ms=VALUE"),
        ("--claim-timeout-ms", "--set jobs.claim_timeout_ms=VALUE"),
        ("--port", "--thrift-port"),  # several settings have this name
    ],
)
def test_an_option_with_the_name_of_a_setting_is_answered_with_its_form(
    offline: Pinlater, option: str, meant: str
) -> None:
    for command in (("serve",), ("server", "settings")):
        done = offline(*command, option, "3")
        assert done.code == exits.USAGE
        assert done.err.startswith(f"error: No such option: {option}")
        assert meant in done.err
    assert "--set" not in offline("console", "--console-port", "3").err


def test_a_demo_whose_server_does_not_start_says_error_once(offline: Pinlater, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINLATER_JOBS_MAX_QUEUES", "some")
    done = offline("demo")
    assert done.err.startswith("error: the server did not start: ")
    assert done.err.count("error: ") == 1


def test_an_invalid_name_of_a_queue_is_refused_with_the_rule_once(pinlater: Pinlater) -> None:
    done = pinlater("queue", "create", "a b")
    rule = "a queue's name is 1 to 64 ASCII letters, digits and underscores"
    assert (done.code, done.err) == (exits.REFUSED, f"error: Invalid queue name: a b; {rule}\n")


def test_hints_say_what_to_do_about_a_queue() -> None:
    assert "`pinlater queue create NAME` creates one" in exits.hint_for(errors.QueueNotFound("x"))
    assert "`pinlater bulk list`" in exits.hint_for(errors.CallerError("x", detail="NO_SUCH_RUN"))
    assert "--after takes" in exits.hint_for(errors.ContinuationInvalid("x"))
    assert "--tls-ca FILE" in exits.hint_for(errors.CallerError(f"getQueueNames: {TLS_PORT}"))
    assert "emails:s1:p1:73" in exits.hint_for(errors.CallerError("x", detail="DESCRIPTOR_INVALID"))
    assert "`pinlater serve`" in exits.hint_for(errors.ServerUnreachable("x"))
    assert "/readyz" in exits.hint_for(errors.NoHealthyShards())
    assert "/readyz" in exits.hint_for(errors.ShardConnectionFailed("x"))
    assert exits.hint_for(errors.OutcomeUnknown("x")) == ""
    assert exits.hint_for(errors.DeadlineExceeded("x")) == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ServerUnreachable("x"), 3),
        (errors.DeadlineExceeded("x"), 3),
        (errors.ConnectionLost("x"), 3),
        (errors.QueueNotFound("x"), 1),
        (errors.UnknownMethod("x"), 1),
        (errors.DequeueRateLimited("x"), 4),
        (errors.NoHealthyShards("x"), 4),
    ],
)
def test_exit_codes_say_whose_fault_it_was(error: errors.PinLaterError, code: int) -> None:
    assert exits.code_for(error) == code


def test_output_to_a_terminal_contains_no_control_characters() -> None:
    assert output.cell("a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"
    assert output.body_text(b"\xff") == "base64:/w=="


def test_a_table_says_that_a_body_is_masked() -> None:
    """An empty one would look like a body without content."""
    job = ClaimedJob("q:s1:p1:1", "q", b"")
    assert output.shown_body(job) == ""
    assert output.shown_body(job._replace(body_masked=True)) == "[masked]"
    assert output.shown_body(job._replace(body=b'{"a": "[masked]"}', body_masked=True)) == '{"a": "[masked]"}'
    assert output.claimed_json(job._replace(body_masked=True))["body_masked"] is True


def test_the_demo_knows_what_must_become_of_its_jobs() -> None:
    assert expected_of(1) == (1, 0, 1)
    assert expected_of(500) == (499, 1, 12)
    assert expected_of(5_000) == (4_990, 10, 120)


@pytest.mark.parametrize("command", [("serve",), ("server", "settings")])
@pytest.mark.parametrize("setting", ["host=", "store=", "thrift.port=", "http.port="])
def test_a_setting_with_a_flag_of_its_own_may_come_by_set_too(
    offline: Pinlater, command: tuple[str, ...], setting: str
) -> None:
    done = offline(*command, "--set", f"{setting} ")
    assert (done.code, "1 problem with the settings" in done.err) == (78, True)


@pytest.mark.parametrize(("setting", "name"), [("http", "HTTP"), ("thrift", "Thrift")])
def test_an_error_about_a_taken_port_names_the_listener_that_wanted_it(
    offline: Pinlater, setting: str, name: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other = {"http": "thrift", "thrift": "http"}[setting]
        done = offline("serve", "--store", "memory:", "--set", f"{setting}.port={port}", "--set", f"{other}.port=0")
    assert done.code == 1
    assert done.err.splitlines()[-1] == (
        f"error: {name} can't listen on 127.0.0.1 port {port}: address already in use "
        f"(--{setting}-port chooses another port, as does {setting}.port in the settings)"
    )


def test_an_error_about_an_address_that_is_not_this_machines_says_where_it_came_from(offline: Pinlater) -> None:
    done = offline(
        "serve", "--store", "memory:", "--host", "192.0.2.1", "--insecure", "--thrift-port", "0", "--http-port", "0"
    )
    assert done.code == 1
    assert done.err.endswith("(--host chooses another address, as does host in the settings)\n")


@pytest.mark.parametrize("command", ["ack", "cancel", "show", "run-now", "change-priority"])
def test_a_descriptor_that_can_not_be_read_is_answered_with_what_one_looks_like(
    offline: Pinlater, command: str
) -> None:
    """Before any server is asked, and with the same words as a server's answer."""
    more = ("--priority", "1") if command == "change-priority" else ()
    done = offline("job", command, "nonsense", *more)
    assert done.code == 1
    assert done.err.startswith("error: Invalid job descriptor: 'nonsense' (a descriptor looks like emails:s1:p1:73: ")
    assert json.loads(offline("job", command, "nonsense", *more, "--json").err)["detail"] == "DESCRIPTOR_INVALID"


def test_a_job_that_exists_under_its_unique_key_is_said(pinlater: Pinlater, queue: str) -> None:
    """Its descriptor alone looks as if it had been stored."""
    arguments = ("job", "enqueue", queue, "--body", "x", "--unique-key", "k")
    first = pinlater.ok(*arguments)
    again = pinlater(*arguments)
    assert (again.code, again.out) == (0, first.out)
    assert again.err == "exists: the job existed under the unique key\n"


class _ThousandJobs:
    """A client whose queue has 1,001 jobs."""

    async def scan(self, queue: str, *, limit: int, continuation: str, **_: object) -> Scanned:
        begin = int(continuation)
        end = min(begin + limit, 1_001)
        jobs = [JobInfo(f"{queue}:s1:p1:{number}", JobState.FAILED, 1, 0, "", 0) for number in range(begin, end)]
        return Scanned(jobs, "-1" if end == 1_001 else str(end))


async def test_the_number_of_jobs_changed_before_an_error_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async def change(piece: Sequence[str]) -> int:
        if len(piece) < 500:
            raise errors.ShardConnectionFailed("gone")
        return len(piece) - 1

    wanted = JobFilter(JobState.FAILED, tasks=frozenset({"send"}))
    with pytest.raises(errors.ShardConnectionFailed):
        await change_found("deleted", ServerCall(json=True), _ThousandJobs(), "q", wanted, change, 1_001)  # type: ignore[arg-type]
    assert json.loads(capsys.readouterr().out) == {"deleted": 998, "incomplete": True, "more": False}


@pytest.mark.parametrize(
    ("command", "complaint", "options"),
    [
        (("server", "backup", "copy.db"), "There is no store at pinlater.db", "--config or --store"),
        (
            ("shards", "status"),
            "sqlite:pinlater.db is no MySQL or Redis store, and has but one shard",
            "--shards, --store or --config",
        ),
    ],
)
def test_an_error_about_the_default_store_says_which_options_name_another(
    offline: Pinlater,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: tuple[str, ...],
    complaint: str,
    options: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = offline(*command)
    assert (done.code, done.err) == (
        exits.REFUSED,
        f"error: {complaint} (this is the default store: {options} names another)\n",
    )
    named = offline(*command, "--store", "sqlite:other.db")
    assert (named.code, "default" in named.err) == (exits.REFUSED, False)


def test_a_body_that_is_no_option_is_told_to_be_one(offline: Pinlater) -> None:
    done = offline("job", "enqueue", "orders", "hello", "big world")
    assert (done.code, done.err) == (
        exits.USAGE,
        "error: Unexpected after the queue: hello 'big world'. A job's body is an option, in quotes if it has spaces: "
        "--body 'hello big world' (see: pinlater job enqueue --help)\n",
    )
    assert "--no-such" in offline("job", "enqueue", "orders", "--no-such", "x").err
