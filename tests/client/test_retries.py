"""When a call is made again, and when it must not be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pinlater.client import (
    Ack,
    AckBatch,
    AsyncClient,
    Claim,
    Client,
    Job,
    JobState,
    UniqueKey,
    _calls,
    _retries,
    errors,
)
from pinlater.client._client_call import ClientCall
from pinlater.client._retries import Again, Resend, decide, ends_connection, passes_by_waiting, pause_s, repeats_end_at
from pinlater.domain.request_keys import REPEATED_WITHIN_MS, REQUEST_KEY_KEPT_MS
from tests import structs as t
from tests.client.fake_server import FakeServer

STORED = t.Enqueued(descriptors=["q:s1:p1:1"])
INFO = t.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1)
DRAINING = t.PinLaterException(500, "stopping", detail="DRAINING", retryable=True)


class Answers:
    """One answer after another; the last one stays."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def __call__(self, _: Any) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("detail", "ends"),
    [
        ("TOO_MANY_CONNECTIONS", True),
        ("CONNECTION_QUOTA_EXCEEDED", True),
        ("QUOTA_EXCEEDED", False),
        ("TOO_MANY_WAITING", False),
    ],
)
def test_no_call_follows_on_a_connection_that_was_one_too_many(detail: str, ends: bool) -> None:
    """The server closes it; a call on its way then would end without an answer."""
    assert ends_connection(errors.error_for(500, "not now", detail, retryable=True)) is ends


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (500, "TOO_MANY_WAITING"),
        (500, "TOO_MANY_CONNECTIONS"),
        (500, "QUOTA_EXCEEDED"),
        (502, "REQUEST_TOO_OLD"),
    ],
)
async def test_a_repeat_that_is_refused_says_nothing_of_the_first_try(code: int, detail: str) -> None:
    refused = t.PinLaterException(code, "not now", detail=detail, retryable=True)
    enqueues = Answers(FakeServer.HANG_UP, refused)
    async with (
        FakeServer(enqueueJobs=enqueues, getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address, timeout_ms=400) as client,
    ):
        with pytest.raises(errors.ConnectionLost):
            await client.enqueue("q", [b"x"])


async def test_a_try_that_stored_nothing_does_not_hide_a_later_one_that_may_have() -> None:
    too_old = t.PinLaterException(502, "too old", detail="REQUEST_TOO_OLD", retryable=True)
    enqueues = Answers(too_old, FakeServer.HANG_UP, too_old)
    async with (
        FakeServer(enqueueJobs=enqueues, getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address, timeout_ms=400) as client,
    ):
        with pytest.raises(errors.ConnectionLost):
            await client.enqueue("q", [b"x"])


@pytest.mark.parametrize(
    ("code", "detail", "kind"),
    [(500, "TOO_MANY_CONNECTIONS", errors.TooManyWaiting), (502, "REQUEST_TOO_OLD", errors.RequestTooOld)],
)
def test_a_refusal_that_did_nothing_has_its_class(code: int, detail: str, kind: type[errors.PinLaterError]) -> None:
    error = errors.error_for(code, "not now", detail, retryable=True)
    assert (type(error), error.code, error.detail) == (kind, code, detail)


# --- decisions ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("resend", Resend)
def test_a_call_that_took_no_effect_is_always_repeated(resend: Resend) -> None:
    assert decide(resend, errors.ServerUnreachable(""), 1, 3) is Again.AS_IT_WAS
    assert decide(resend, errors.WorldError("", detail="DRAINING"), 1, 3) is Again.AS_IT_WAS
    assert decide(resend, errors.ServerUnreachable(""), 4, 3) is Again.NO


@pytest.mark.parametrize("error", [errors.ConnectionLost(""), errors.DeadlineExceeded(""), errors.NoHealthyShards("")])
def test_a_call_that_may_have_taken_effect_is_repeated_only_where_that_is_safe(error: errors.PinLaterError) -> None:
    assert decide(Resend.NEVER, error, 1, 3) is Again.NO
    assert decide(Resend.SAFE, error, 1, 3) is Again.AS_A_REPEAT
    assert decide(Resend.KEYED, error, 1, 3) is Again.AS_A_REPEAT


@pytest.mark.parametrize(
    "error",
    [
        errors.QueueNotFound(""),
        errors.EnqueueRejected(""),
        errors.QueueFull(""),
        errors.StoreFull(""),
        errors.DequeueRateLimited(""),
        errors.TooManyWaiting(""),
        errors.ShardRefused("raise max_allowed_packet", retryable=False),
    ],
)
@pytest.mark.parametrize("resend", Resend)
def test_a_refusal_is_the_callers_to_handle(resend: Resend, error: errors.PinLaterError) -> None:
    assert decide(resend, error, 1, 3, all_or_nothing=True) is Again.NO


@pytest.mark.parametrize(
    "error",
    [errors.NoHealthyShards(), errors.ShardConnectionFailed(""), errors.ShardRefused(""), errors.RequestTooOld()],
)
@pytest.mark.parametrize("resend", Resend)
def test_a_call_that_a_shard_refused_as_a_whole_took_no_effect(resend: Resend, error: errors.PinLaterError) -> None:
    assert decide(resend, error, 1, 3, all_or_nothing=True) is Again.AS_IT_WAS
    in_parts = Again.NO if resend is Resend.NEVER else Again.AS_A_REPEAT
    assert decide(resend, error, 1, 3, all_or_nothing=False) is in_parts
    assert passes_by_waiting(error)


def test_an_unknown_outcome_is_repeated_a_bounded_number_of_times() -> None:
    unknown = errors.OutcomeUnknown("")
    assert decide(Resend.NEVER, unknown, 1, 3, all_or_nothing=True) is Again.NO
    assert decide(Resend.KEYED, unknown, 1, 3, all_or_nothing=True) is Again.AS_A_REPEAT
    assert not passes_by_waiting(unknown)


@pytest.mark.parametrize(
    ("call", "all_or_nothing"),
    [
        (_calls.enqueue("q", [b"x", b"y"], None, repeat=False), True),
        (_calls.enqueue("q", [Job(b"x", unique=UniqueKey(key)) for key in "ab"], None, repeat=False), False),
        (_calls.dequeue("q", 1, wait_ms=0, acks=None, dry_run=False, coverage=1.0), True),
        (_calls.dequeue("q", 1, wait_ms=0, acks=AckBatch("q", [Ack("a")]), dry_run=False, coverage=1.0), False),
        (_calls.acknowledge("q", [Ack("a")], per_item_errors=False), True),
        (_calls.acknowledge("q", [Ack("a"), Ack("b")], per_item_errors=False), False),
        (_calls.release("q", [Claim("a", "t")], 0, per_item_errors=False), True),
        (_calls.delete_queue("q", "secret"), False),
        (_calls.delete_jobs("q", JobState.FAILED, priority=1, regex=None, limit=1), False),
    ],
)
def test_a_shards_refusal_of_a_call_to_one_shard_is_one_of_the_whole_call(
    call: ClientCall[Any], all_or_nothing: bool
) -> None:
    assert call.all_or_nothing is all_or_nothing


def test_pauses_grow_are_spread_and_honour_a_hint_where_there_is_no_other_server() -> None:
    assert pause_s(1, None, other_servers=True, spread=0.5) == 0
    pauses = [pause_s(failures, None, other_servers=False, spread=0.0) for failures in (1, 2, 3, 9, 1000)]
    assert pauses == sorted(pauses)
    assert pauses[-1] <= 2
    assert pause_s(2, None, other_servers=True, spread=0.9) > pause_s(2, None, other_servers=True, spread=0.0)
    assert pause_s(1, 1500, other_servers=False, spread=0.0) == 1.5
    assert pause_s(1, 1500, other_servers=False, spread=0.9) > 1.5


# --- enqueues -----------------------------------------------------------------------------------------------------------
async def test_an_enqueue_whose_answer_is_lost_is_sent_again_under_its_key() -> None:
    async with (
        FakeServer(enqueueJobs=Answers(FakeServer.HANG_UP, STORED), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
    ):
        assert (await client.enqueue("q", [b"x"])).descriptors == ["q:s1:p1:1"]
    first, second = [call.request for call in server.called("enqueueJobs")]
    assert first.request_key
    assert (first.repeated, second.repeated) == (None, True)
    assert first.request_key == second.request_key


async def test_two_enqueues_never_share_a_key() -> None:
    async with (
        FakeServer(enqueueJobs=Answers(STORED), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
    ):
        await client.enqueue("q", [b"x"])
        await client.enqueue("q", [b"x"])
    first, second = [call.request.request_key for call in server.called("enqueueJobs")]
    assert first != second


@pytest.mark.parametrize("known_before", [True, False])
async def test_an_original_server_gets_no_resend_and_that_is_said_once(
    known_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers(STORED, FakeServer.HANG_UP) if known_before else Answers(FakeServer.HANG_UP)
    async with FakeServer(enqueueJobs=answers) as server, AsyncClient(server.address) as client:
        if known_before:
            await client.enqueue("q", [b"x"])
            async with asyncio.timeout(30):
                while not caplog.records:
                    await asyncio.sleep(0)
        for _ in range(2):
            with pytest.raises(errors.ConnectionLost):
                await client.enqueue("q", [b"y"])
    assert len(server.called("enqueueJobs")) == 2 + known_before
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "ignores request keys" in caplog.text


async def test_without_request_keys_a_lost_enqueue_is_an_error() -> None:
    async with (
        FakeServer(enqueueJobs=Answers(FakeServer.HANG_UP), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address, request_keys=False) as client,
    ):
        with pytest.raises(errors.ConnectionLost):
            await client.enqueue("q", [b"x"])
    (sent,) = server.called("enqueueJobs")
    assert sent.request.request_key is None


# --- several servers ----------------------------------------------------------------------------------------------------
async def test_a_server_that_drains_sends_its_calls_to_the_next() -> None:
    async with (
        FakeServer(deleteJobs=Answers(DRAINING)) as draining,
        FakeServer(deleteJobs=Answers(3)) as other,
        AsyncClient([draining.address, other.address], connections=2) as client,
    ):
        for _ in range(4):
            assert await client.delete_jobs("q", JobState.FAILED, priority=1) == 3
        assert len(draining.called("deleteJobs")) <= 2
        assert len(other.called("deleteJobs")) == 4


async def test_a_server_that_hangs_leaves_time_for_the_next() -> None:
    async with (
        FakeServer(getJobCount=lambda _: asyncio.Event().wait()) as hung,
        FakeServer(getJobCount=Answers(7)) as other,
        AsyncClient([hung.address, other.address], timeout_ms=2_000) as client,
    ):
        assert [await client.count("q") for _ in range(4)] == [7] * 4
        assert len(hung.called("getJobCount")) <= 2


async def test_a_call_is_repeated_until_the_server_has_restarted() -> None:
    async with FakeServer(createQueue=lambda _: None) as server, AsyncClient(server.address) as client:
        await client.create_queue("q")
        await server.stop()
        call = asyncio.create_task(client.create_queue("q"))
        await asyncio.sleep(0)
        await server.start()
        await call


async def test_retries_are_bounded_and_can_be_switched_off() -> None:
    async with FakeServer(getJobCount=Answers(FakeServer.HANG_UP)) as server:
        for retries in (0, 2):
            server.calls.clear()
            async with AsyncClient(server.address, retries=retries) as client:
                with pytest.raises(errors.ConnectionLost):
                    await client.count("q")
            assert len(server.called("getJobCount")) == 1 + retries


async def test_a_refused_shard_is_asked_for_again_only_where_that_is_safe() -> None:
    refusal = t.PinLaterException(502, "a shard is away", detail="SHARD_UNREACHABLE", retryable=True)
    async with (
        FakeServer(getJobCount=Answers(refusal, 5), deleteJobs=Answers(refusal, 5)) as server,
        AsyncClient(server.address) as client,
    ):
        assert await client.count("q") == 5
        with pytest.raises(errors.ShardConnectionFailed):
            await client.delete_jobs("q", JobState.FAILED, priority=1)


# --- a key's life -------------------------------------------------------------------------------------------------------
def test_no_repeat_is_made_after_the_time_in_which_a_key_is_sure_to_be_known() -> None:
    assert REPEATED_WITHIN_MS < REQUEST_KEY_KEPT_MS
    assert repeats_end_at(100.0) == 100.0 + REPEATED_WITHIN_MS / 1000


@pytest.mark.parametrize("sync", [False, True])
async def test_an_enqueue_whose_answer_is_lost_late_is_not_sent_again(
    sync: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key may be forgotten, and then it would be stored twice: the caller learns that the outcome is unknown."""
    monkeypatch.setattr(_retries, "_REPEATED_WITHIN_S", 0.2)

    async def hang_up_late(_: Any) -> Any:
        loop, late = asyncio.get_running_loop(), asyncio.Event()
        loop.call_later(0.4, late.set)
        await late.wait()
        return FakeServer.HANG_UP

    async with FakeServer(enqueueJobs=hang_up_late, getServerInfo=lambda _: INFO) as server:
        with pytest.raises(errors.ConnectionLost):
            await enqueue_with(sync, [server.address])
        assert len(server.called("enqueueJobs")) == 1


@pytest.mark.parametrize("sync", [False, True])
async def test_no_server_gets_an_enqueue_again_after_its_keys_life(sync: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client tries the others in time, and then gives up, however much of its time-out is left."""
    monkeypatch.setattr(_retries, "_REPEATED_WITHIN_S", 0.4)

    async def hang(_: Any) -> Any:
        await asyncio.Event().wait()

    async with (
        FakeServer(enqueueJobs=hang, getServerInfo=lambda _: INFO) as one,
        FakeServer(enqueueJobs=hang, getServerInfo=lambda _: INFO) as other,
    ):
        with pytest.raises(errors.DeadlineExceeded):
            await enqueue_with(sync, [one.address, other.address])
        repeats = [call.request.repeated for call in one.called("enqueueJobs") + other.called("enqueueJobs")]
        assert repeats.count(None) == 1
        assert repeats.count(True) >= 1


async def enqueue_with(sync: bool, servers: list[str]) -> None:
    if not sync:
        async with AsyncClient(servers, timeout_ms=260_000) as client:
            await client.enqueue("q", [b"x"])
        return
    with Client(servers, timeout_ms=260_000) as blocking:
        await asyncio.to_thread(blocking.enqueue, "q", [b"x"])


async def test_an_enqueue_is_sent_to_another_server_while_its_key_is_sure_to_be_known() -> None:
    """With a long time-out, too: half of that would be beyond the key's life."""
    engine = AsyncClient(["a:1", "b:1"], timeout_ms=260_000)._new_engine()
    call = _calls.enqueue("q", [b"x"], "key", repeat=False)
    deadline, limit = engine.deadlines(call)
    assert limit < deadline - 260 + REPEATED_WITHIN_MS / 1000
