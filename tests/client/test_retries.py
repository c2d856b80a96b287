"""When a call is made again, and when it must not be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from pinlater.client import Ack, AckBatch, AsyncClient, Claim, Client, Job, JobState, UniqueKey, errors
from pinlater.domain import request_keys
from pinlater.wire.generated import structs as types
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.client.scripted import Script, lost

STORED = t.Enqueued(descriptors=["q:s1:p1:1"])
INFO = t.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1)
DRAINING = t.PinLaterException(500, "stopping", detail="DRAINING", retryable=True)


class Answers:
    """One answer after another; the last one stays."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def __call__(self, _: Any) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, t.PinLaterException):
            raise answer
        return answer


pytestmark = pytest.mark.usefixtures("pauses")


# --- which calls, after which errors ------------------------------------------------------------------------------------------
class Kind(NamedTuple):
    """A call. `method`, `answer`: the server's. `repeats`: None if it must not be made twice, else what its repeat says of itself.
    `whole`: whether a shard's refusal means that nothing of it was done."""

    method: str
    answer: Any
    ask: Callable[[AsyncClient], Awaitable[Any]]
    repeats: str | None = None
    whole: bool = False


TWO_KEYS = [Job(b"x", unique=UniqueKey(key)) for key in "ab"]
OUTCOME = [types.AckResult("q:s1:p1:1", 0)]
NO_JOBS = types.DequeueResponse()
KINDS = {
    "enqueue": Kind("enqueueJobs", STORED, lambda to: to.enqueue("q", [b"x"]), "said", True),
    "enqueue of two unique keys": Kind("enqueueJobs", STORED, lambda to: to.enqueue("q", TWO_KEYS), "said"),
    "count": Kind("getJobCount", 5, lambda to: to.count("q"), "the same"),
    "create_queue": Kind("createQueue", None, lambda to: to.create_queue("q"), "the same"),
    "dequeue": Kind("dequeueJobs", NO_JOBS, lambda to: to.dequeue("q"), whole=True),
    "dequeue with acks": Kind("dequeueJobs", NO_JOBS, lambda to: to.dequeue("q", acks=AckBatch("q", [Ack("a")]))),
    "ack": Kind("ackJobs", OUTCOME, lambda to: to.ack("q", [Ack("a")]), whole=True),
    "two acks": Kind("ackJobs", OUTCOME * 2, lambda to: to.ack("q", [Ack("a"), Ack("b")])),
    "release": Kind("releaseJobs", OUTCOME, lambda to: to.release("q", [Claim("a", "t")]), whole=True),
    "delete_queue": Kind("deleteQueue", None, lambda to: to.delete_queue("q", "secret")),
    "delete_jobs": Kind("deleteJobs", 5, lambda to: to.delete_jobs("q", JobState.FAILED, priority=1)),
}
UNSENT = [errors.ServerUnreachable(""), errors.WorldError("", detail="DRAINING")]
OF_A_SHARD = [
    errors.NoHealthyShards(),
    errors.ShardConnectionFailed(""),
    errors.ShardRefused(""),
    errors.RequestTooOld(""),
]
UNKNOWN = [errors.ConnectionLost(""), errors.DeadlineExceeded(""), errors.OutcomeUnknown("")]
FINAL = [
    errors.QueueNotFound(""),
    errors.EnqueueRejected(""),
    errors.QueueFull(""),
    errors.StoreFull(""),
    errors.DequeueRateLimited(""),
    errors.TooManyWaiting(""),
    errors.ShardRefused("raise max_allowed_packet", retryable=False),
]


@pytest.mark.parametrize("error", [*UNSENT, *OF_A_SHARD, *UNKNOWN, *FINAL], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", KINDS)
async def test_a_call_is_made_again_if_it_took_no_effect_or_if_a_repeat_is_safe(
    name: str, error: errors.PinLaterError
) -> None:
    """A refusal that seconds do not change is the caller's to handle."""
    kind = KINDS[name]
    took_none = error in UNSENT or (kind.whole and error in OF_A_SHARD)
    again = took_none or (error not in FINAL and kind.repeats is not None)
    answers = [error, kind.answer]
    script = Script(**{kind.method: lambda _: answers.pop(0), "getServerInfo": lambda _: INFO})
    async with AsyncClient("a", connect=script.connect) as client:
        if again:
            await kind.ask(client)
        else:
            with pytest.raises(type(error)):
                await kind.ask(client)
    assert len(script.requests_of(kind.method)) == 1 + again
    if kind.repeats == "said":
        said = [request.repeated for request in script.requests_of(kind.method)]
        assert said == ([None, None if took_none else True] if again else [None])


async def test_a_call_with_an_unknown_outcome_is_repeated_a_bounded_number_of_times() -> None:
    for error in UNKNOWN:
        script = Script(getJobCount=Answers(error))
        async with AsyncClient("a", connect=script.connect, retries=3) as client:
            with pytest.raises(type(error)):
                await client.count("q")
        assert len(script.requests_of("getJobCount")) == 4


async def test_pauses_grow_are_spread_and_honour_a_hint_where_there_is_no_other_server(pauses: list[float]) -> None:
    async def pauses_of(servers: str, tries: int, retry_after_ms: int | None = None) -> list[float]:
        pauses.clear()
        away = errors.ShardConnectionFailed("", retry_after_ms=retry_after_ms)
        answers = [away] * tries
        script = Script(getJobCount=lambda _: answers.pop() if answers else 5)
        async with AsyncClient(servers, connect=script.connect, follow_owners=False) as client:
            await client.count("q")
        return list(pauses)

    firsts = {(await pauses_of("a", 1))[0] for _ in range(20)}
    assert len(firsts) > 10
    assert all(0.02 < pause <= 0.05 for pause in firsts)
    grown = await pauses_of("a", 9)
    assert grown[0] < grown[1] < grown[2]
    assert all(0.4 < pause <= 1 for pause in grown[3:])
    assert all(1.5 <= pause < 1.9 for pause in await pauses_of("a", 1, 1_500))
    assert await pauses_of("a b", 1, 1_500) == []  # there is another server
    assert all(pause < 0.3 for pause in await pauses_of("a b", 2, 1_500))


@pytest.mark.parametrize(
    ("detail", "ends"),
    [
        ("TOO_MANY_CONNECTIONS", True),
        ("CONNECTION_QUOTA_EXCEEDED", True),
        ("QUOTA_EXCEEDED", False),
        ("TOO_MANY_WAITING", False),
    ],
)
async def test_no_call_follows_on_a_connection_that_was_one_too_many(detail: str, ends: bool) -> None:
    """The server closes it; a call on its way then would end without an answer."""
    answers = [errors.error_for(500, "not now", detail, retryable=True), 5]
    script = Script(getJobCount=lambda _: answers.pop(0))
    async with AsyncClient("a", connect=script.connect, connections=1) as client:
        with pytest.raises(errors.PinLaterError):
            await client.count("q")
        assert await client.count("q") == 5
    assert len(script.tried) == 1 + ends


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (500, "TOO_MANY_WAITING"),
        (500, "TOO_MANY_CONNECTIONS"),
        (500, "QUOTA_EXCEEDED"),
        (502, "REQUEST_TOO_OLD"),
    ],
)
@pytest.mark.parametrize("stored_nothing_before", [False, True])
async def test_a_repeat_that_is_refused_says_nothing_of_the_try_whose_answer_was_lost(
    code: int, detail: str, stored_nothing_before: bool
) -> None:
    """Nor does a try that stored nothing, before the lost one, say anything of it."""
    refused = errors.error_for(code, "not now", detail, retryable=True)
    too_old = errors.error_for(502, "too old", "REQUEST_TOO_OLD", retryable=True)
    answers: list[Any] = [too_old, lost()] if stored_nothing_before else [lost()]
    script = Script(enqueueJobs=lambda _: answers.pop(0) if answers else refused, getServerInfo=lambda _: INFO)
    async with AsyncClient("a", connect=script.connect, timeout_ms=100) as client:
        with pytest.raises(errors.ConnectionLost):
            await client.enqueue("q", [b"x"])


@pytest.mark.parametrize(
    ("code", "detail", "kind"),
    [(500, "TOO_MANY_CONNECTIONS", errors.TooManyWaiting), (502, "REQUEST_TOO_OLD", errors.RequestTooOld)],
)
def test_a_refusal_that_did_nothing_has_its_class(code: int, detail: str, kind: type[errors.PinLaterError]) -> None:
    error = errors.error_for(code, "not now", detail, retryable=True)
    assert (type(error), error.code, error.detail) == (kind, code, detail)


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


# --- a key's life -------------------------------------------------------------------------------------------------------
def test_no_repeat_is_made_after_the_time_in_which_a_key_is_sure_to_be_known() -> None:
    assert request_keys.REPEATED_WITHIN_MS < request_keys.REQUEST_KEY_KEPT_MS


@pytest.mark.parametrize("sync", [False, True])
async def test_an_enqueue_whose_answer_is_lost_late_is_not_sent_again(
    sync: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key may be forgotten, and then it would be stored twice: the caller learns that the outcome is unknown."""
    monkeypatch.setattr(request_keys, "REPEATED_WITHIN_MS", 200)

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
    monkeypatch.setattr(request_keys, "REPEATED_WITHIN_MS", 400)

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
