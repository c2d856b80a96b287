"""All commands with an argument QUEUE take it in the same ways, and say the same of what is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from pinlater.cli import exits
from tests.cli.conftest import Pinlater, every_command
from tests.cli.test_looking import complete

RUN = "0123456789abcdef"
MORE: dict[str, tuple[str, ...]] = {
    "audit": (),
    "bulk list": (),
    "bulk start": ("--action", "retry"),
    "bulk stop": (RUN,),
    "bulk undo": (RUN,),
    "job check-dequeue": (),
    "cluster status": (),
    "job count": (),
    "job delete": ("--state", "failed"),
    "job dequeue": (),
    "job enqueue": ("--body", "x"),
    "job failures": (),
    "bench load": ("--num-queries", "1"),
    "job peek": (),
    "queue config": (),
    "queue create": (),
    "queue delete": ("--no-password",),
    "queue pause": (),
    "queue resume": (),
    "queue unblock": ("--key", "k"),
    "queue stats": (),
    "job retry": (),
    "job list": (),
    "worker list": (),
}
"""What else each command needs."""
MAKES_IT = {"bench load", "queue create"}
DOES_NOT_NEED_IT = {"audit", "cluster status", "queue delete"}


def with_queue() -> Iterator[tuple[str, Any]]:
    """The commands that have the argument."""
    for words, command in every_command():
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        if any((argument.metavar or "").startswith("QUEUE") for argument in arguments):
            yield words, command


def test_each_command_with_a_queue_is_tested_and_takes_it_as_an_option() -> None:
    found = dict(with_queue())
    assert set(found) == set(MORE)
    for command in found.values():
        assert any(param.opts == ["--queue", "-q"] for param in command.params)


@pytest.mark.parametrize("command", MORE)
def test_a_queue_is_named_in_place_or_with_an_option(pinlater: Pinlater, queue: str, command: str) -> None:
    words, more = command.split(), MORE[command]
    in_place = pinlater(*words, queue, *more)
    for named in (("--queue", queue, *more), (*more, f"--queue={queue}"), ("-q", queue, *more)):
        as_option = pinlater(*words, *named)
        assert (as_option.code, as_option.code == exits.USAGE) == (in_place.code, False), as_option.err
        if in_place.code:
            assert as_option.err == in_place.err


@pytest.mark.parametrize("command", MORE)
def test_a_misspelled_queue_is_named(pinlater: Pinlater, command: str) -> None:
    if command in MAKES_IT:
        return
    misspelled = f"emials_{uuid4().hex}"
    done = pinlater(*command.split(), misspelled, *MORE[command])
    assert done.code == (exits.OK if command in DOES_NOT_NEED_IT else exits.REFUSED)
    assert f"no queue {misspelled}" in done.err or f"Queue not found: {misspelled}" in done.err
    assert "`pinlater queue list` shows the queues" in done.err


@pytest.mark.parametrize("command", MORE)
def test_an_empty_name_and_a_job_are_no_queue(offline: Pinlater, command: str) -> None:
    """`"$QUEUE"` is empty if the shell has no such variable."""
    words, more = command.split(), MORE[command]
    for named in (("", *more), (*more, "--queue", "")):
        empty = offline(*words, *named)
        assert (empty.code, empty.out) == (exits.USAGE, "")
        assert "QUEUE: the name is empty; a queue's name is 1 to 64 ASCII letters, digits and underscores" in empty.err
    job = offline(*words, "emails:s1:p1:42", *more)
    assert (job.code, "emails:s1:p1:42 names a job, not a queue" in job.err) == (exits.USAGE, True)


def test_several_queues_are_named_in_both_ways_together(pinlater: Pinlater, queue: str) -> None:
    other = f"{queue}_other"
    pinlater.ok("queue", "create", other)
    found = pinlater.ok("queue", "stats", queue, "--queue", other, "--json").json["queues"]
    assert {each["queue"] for each in found} == {queue, other}


def test_one_queue_is_named_once(offline: Pinlater) -> None:
    for named in (("emails", "--queue", "emails"), ("--queue", "emails", "-q", "sms")):
        done = offline("job", "count", *named, "--json")
        assert (done.code, json.loads(done.err)["error"][:9]) == (exits.USAGE, "Name one ")


def test_an_option_may_have_the_text_of_the_option_as_its_value(pinlater: Pinlater, queue: str) -> None:
    descriptor = pinlater.ok("job", "enqueue", "-q", queue, "--body", "--queue").out.strip()
    assert pinlater.ok("job", "show", descriptor, "--body", "--json").json["jobs"][0]["body"] == "--queue"


def test_the_option_completes_names_of_queues(pinlater: Pinlater, queue: str) -> None:
    words = f"pinlater audit --server {pinlater.address} --queue {queue[:10]}"
    assert complete("127.0.0.1:1", words, 5) == [queue]
