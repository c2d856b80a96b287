"""The history of queues and deploy marks over HTTP."""

from __future__ import annotations

from pinlater.domain.clock import ManualClock
from pinlater.server.features.history.keeper import HistoryKeeper
from pinlater.server.main.core import Core
from tests.console.caller import Caller

MAIL, HISTORY, MARKS = "/v1/queues/mail", "/v1/queues/mail/history", "/v1/marks"
START_MS = 1_767_225_600_000


async def a_minute(core: Core, clock: ManualClock) -> None:
    clock.advance(seconds=60)
    await core.sweeps.advance_due()
    await core.rates.sample()
    await core.service.of(HistoryKeeper).keep()


async def test_a_queue_has_its_points_and_marks(caller: Caller, core: Core, clock: ManualClock) -> None:
    await caller.send("POST", f"{MAIL}/jobs", b"x")
    [job] = (await caller.ok("POST", f"{MAIL}/jobs/dequeue"))["jobs"]
    clock.advance(ms=15)
    await caller.ok("POST", f"{MAIL}/jobs/ack", {"jobs": [{"descriptor": job["descriptor"], "token": job["token"]}]})
    await caller.ok("POST", MARKS, {"text": "v2", "at_ms": START_MS + 5})
    await a_minute(core, clock)

    answer = await caller.ok("GET", HISTORY)

    assert answer == {
        "queue": "mail",
        "step_s": 60,
        "from_ms": START_MS - 59 * 60_000,
        "until_ms": START_MS + 60_015,
        "points": [
            {
                "at_ms": START_MS,
                "enqueued": 1,
                "claimed": 1,
                "succeeded": 1,
                "failed": 0,
                "timed_out": 0,
                "expired": 0,
                "due": None,
                "scheduled": None,
                "running": None,
                "oldest_ms": None,
                "wait_ms": {"number": 1, "p50": 0, "p90": 0, "p99": 0},
                "run_ms": {"number": 1, "p50": 15, "p90": 15, "p99": 15},
            }
        ],
        "marks": [{"at_ms": START_MS + 5, "text": "v2", "queue": None}],
        "incomplete": False,
    }


async def test_several_queues_come_at_once(caller: Caller, core: Core, clock: ManualClock) -> None:
    await caller.ok("POST", "/v1/queues", {"name": "orders"})
    await caller.send("POST", f"{MAIL}/jobs", b"x")
    await a_minute(core, clock)

    answer = await caller.ok("GET", f"/v1/history?queue=mail&queue=orders&queue=gone&step_s=600&from_ms={START_MS}")

    assert [(each["queue"], [point["due"] for point in each["points"]]) for each in answer["queues"]] == [
        ("mail", [1]),
        ("orders", []),
    ]
    assert (answer["step_s"], answer["from_ms"]) == (600, START_MS)


async def test_a_mark_without_a_time_is_of_now_and_may_be_of_one_queue(caller: Caller, clock: ManualClock) -> None:
    made = await caller.ok("POST", MARKS, {"text": "v2", "queue": "mail"})
    assert made == {"at_ms": START_MS, "text": "v2", "queue": "mail"}
    clock.advance(ms=1)
    assert (await caller.ok("GET", HISTORY))["marks"] == [made]


async def test_wrong_ranges_and_marks_are_refused(caller: Caller) -> None:
    for path in (
        f"{HISTORY}?step_s=61",
        f"{HISTORY}?from_ms={START_MS + 1}",
        "/v1/history",
        f"{HISTORY}?from_ms=1&step_s=60",
    ):
        assert (await caller.refused("GET", path))["status"] in (400, 422)
    for mark in ({"text": ""}, {"text": "a\nb"}, {"text": "x", "at_ms": 1}, {}):
        assert (await caller.refused("POST", MARKS, mark))["status"] in (400, 422)
    assert (await caller.refused("POST", MARKS, {"text": "x", "queue": "gone"}))["status"] == 404
    assert (await caller.refused("GET", "/v1/queues/gone/history"))["status"] == 404
