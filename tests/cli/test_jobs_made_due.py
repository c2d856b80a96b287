"""`run-now` and `retry-failed` say why a job can't run again, and that its queue is paused."""

from __future__ import annotations

from unittest.mock import AsyncMock

import pytest

from pinlater.cli import exits
from pinlater.client import AsyncClient
from pinlater.client.errors import AccessDenied, ServerUnreachable
from tests.cli.conftest import Pinlater


def put(pinlater: Pinlater, queue: str, *options: str) -> str:
    """The descriptor of a new job."""
    return pinlater.ok("job", "enqueue", queue, "--body", "x", *options).out.strip()


def failed(pinlater: Pinlater, queue: str, *options: str) -> str:
    """The descriptor of a job that has failed."""
    descriptor = put(pinlater, queue, *options)
    pinlater.ok("job", "dequeue", queue)
    pinlater.ok("job", "ack", descriptor, "--failed", "--final")
    return descriptor


def succeeded(pinlater: Pinlater, queue: str) -> str:
    """The descriptor of a job that has succeeded."""
    descriptor = put(pinlater, queue)
    pinlater.ok("job", "dequeue", queue)
    pinlater.ok("job", "ack", descriptor)
    return descriptor


@pytest.mark.parametrize("command", [("job", "run-now"), ("job", "retry", "-d")])
def test_it_says_why_a_job_cannot_run_again(pinlater: Pinlater, queue: str, command: tuple[str, ...]) -> None:
    done, keyed = succeeded(pinlater, queue), failed(pinlater, queue, "--unique-key", "ada")
    put(pinlater, queue, "--unique-key", "ada")
    words = {done: "succeeded before", keyed: "another job has its unique key 'ada'"}
    for descriptor, why in words.items():
        run = pinlater(*command, descriptor)
        assert (run.code, run.out, run.err) == (exits.REFUSED, f"{why}: {descriptor}\n", "")
    [told] = pinlater(*command, done, "--json").json["results"]
    assert (told["outcome"], told["reason"]) == ("ALREADY_FINAL", "succeeded before")


def test_a_job_that_cannot_be_looked_up_has_no_exact_reason(
    pinlater: Pinlater, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = succeeded(pinlater, queue)
    monkeypatch.setattr(AsyncClient, "lookup", AsyncMock(side_effect=ServerUnreachable("gone")))
    run = pinlater("job", "run-now", done)
    assert run.out == f"succeeded or expired before, or its unique key is taken: {done}\n"
    assert pinlater("job", "run-now", done, "--json").json["results"][0]["reason"] is None


def test_it_says_that_the_queue_is_paused(pinlater: Pinlater, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (failed(pinlater, queue) for _ in range(3))
    pinlater.ok("queue", "pause", queue)
    note = f"note: {queue} is paused: its jobs wait until `pinlater queue resume {queue}`\n"
    for command in (
        ("job", "run-now", first),
        ("job", "retry", "-d", second),
        ("job", "retry", queue, "--newer-than", "1h"),
    ):
        run = pinlater(*command)
        assert (run.code, run.err) == (exits.OK, note)
    pinlater.ok("job", "cancel", third)
    assert pinlater("job", "retry", queue, "--cancelled").err == note
    pinlater.ok("job", "retry", queue)  # none changed

    monkeypatch.setattr(AsyncClient, "queue_config", AsyncMock(side_effect=AccessDenied("no")))
    pinlater.ok("job", "run-now", first)
