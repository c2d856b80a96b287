"""Queues and servers over HTTP."""

from __future__ import annotations

from pinlater.version import __version__
from tests.console.caller import Caller
from tests.console.conftest import PASSWORD

MAIL = "/v1/queues/mail"


async def test_queues_are_created_and_listed(caller: Caller) -> None:
    for _ in range(2):
        assert await caller.ok("POST", "/v1/queues", {"name": "orders"}) == {"name": "orders"}
    assert await caller.ok("GET", "/v1/queues") == {"queues": [{"name": "mail"}, {"name": "orders"}]}


async def test_a_queue_is_created_as_an_ordered_one_unless_it_exists(caller: Caller) -> None:
    orders = {"name": "orders", "ordered": True}
    for _ in range(2):
        assert await caller.ok("POST", "/v1/queues", orders) == {"name": "orders"}
    problem = await caller.refused("POST", "/v1/queues", {"name": "mail", "ordered": True})
    assert (problem["status"], problem["detail"][:17]) == (400, "Queue mail exists")
    problem = await caller.refused("POST", "/v1/queues/orders/jobs?ordering_key=key", "1")
    assert "ordered as a whole" in problem["detail"]


async def test_a_queue_is_there_or_not(caller: Caller) -> None:
    assert await caller.ok("GET", MAIL) == {"name": "mail"}
    problem = await caller.refused("GET", "/v1/queues/orders")
    assert (problem["status"], problem["code"]) == (404, "QUEUE_NOT_FOUND")


async def test_a_queue_is_deleted_with_the_admin_password(caller: Caller) -> None:
    problem = await caller.refused("DELETE", MAIL)
    assert (problem["status"], problem["code"]) == (403, "PASSWORD_INVALID")
    problem = await caller.refused("DELETE", MAIL, PinLater_Admin_Password="guess")
    assert (problem["status"], problem["code"]) == (403, "PASSWORD_INVALID")
    assert await caller.ok("DELETE", MAIL, PinLater_Admin_Password=PASSWORD) is None
    assert await caller.ok("GET", "/v1/queues") == {"queues": []}


async def test_settings_are_replaced_and_changed(caller: Caller) -> None:
    replaced = await caller.ok("PUT", f"{MAIL}/settings", {"max_backlog": 10, "claim_timeout_ms": 5000})
    assert (replaced["settings"]["max_backlog"], replaced["settings"]["claim_timeout_ms"]) == (10, 5000)
    changed = await caller.ok("PATCH", f"{MAIL}/settings", {"max_backlog": None, "max_jobs_per_second": 2.5})
    assert changed["settings"] == {
        "max_jobs_per_second": 2.5,
        "burst": None,
        "claim_timeout_ms": 5000,
        "succeeded_ttl_ms": None,
        "failed_ttl_ms": None,
        "max_backlog": None,
        "default_attempts": None,
        "default_expiry_ms": None,
        "partitions": None,
        "max_in_hand_per_key": None,
        "retry_place": None,
        "after_failure": None,
    }
    assert changed["origins"]["claim_timeout_ms"] == "queue"
    assert await caller.ok("PATCH", f"{MAIL}/settings") == changed
    assert await caller.ok("GET", f"{MAIL}/settings") == changed


async def test_a_key_that_no_job_has_stopped_is_unblocked_without_effect(caller: Caller) -> None:
    assert await caller.ok("POST", f"{MAIL}/unblock", {"ordering_key": "k"}) == {"jobs": 0}
    assert (await caller.refused("POST", f"{MAIL}/unblock", {"ordering_key": ""}))["status"] == 400


async def test_the_number_of_partitions_is_set_and_left_to_the_servers(caller: Caller) -> None:
    """There is one shard, so no number is shown with the counts."""
    assert (await caller.ok("PATCH", f"{MAIL}/settings", {"partitions": 1}))["settings"]["partitions"] == 1
    for bad in (0, -1, "many"):
        problem = await caller.refused("PATCH", f"{MAIL}/settings", {"partitions": bad})
        assert problem["status"] == 400
    assert (await caller.ok("PATCH", f"{MAIL}/settings", {"partitions": None}))["settings"]["partitions"] is None
    stats = await caller.ok("GET", f"{MAIL}/stats")
    assert (stats["partition_number"], stats["partitions"]) == (None, [])
    assert (await caller.ok("GET", "/v1/cluster"))["partitions"] == {}


async def test_a_queue_is_paused_and_resumed(caller: Caller) -> None:
    await caller.send("POST", f"{MAIL}/jobs", b"x")
    assert await caller.ok("POST", f"{MAIL}/pause") == {"name": "mail", "paused": True}
    answer = await caller.post(f"{MAIL}/jobs/dequeue")
    assert (answer.status, answer.json["code"], answer.json["reason"]) == (429, "DEQUEUE_RATE_LIMITED", "QUEUE_PAUSED")
    assert int(answer.headers["retry-after"]) >= 1
    assert await caller.ok("POST", f"{MAIL}/resume") == {"name": "mail", "paused": False}
    assert (await caller.ok("POST", f"{MAIL}/jobs/dequeue"))["jobs"]


async def test_statistics_are_of_one_queue_of_several_or_of_all(caller: Caller) -> None:
    await caller.ok("POST", "/v1/queues", {"name": "orders"})
    await caller.send("POST", f"{MAIL}/jobs?priority=2", b"x")
    stats = await caller.ok("GET", f"{MAIL}/stats")
    assert stats["queue"] == "mail"
    assert {counts["priority"]: counts["pending"] for counts in stats["priorities"]}[2] == 1
    assert [one["queue"] for one in (await caller.ok("GET", "/v1/stats"))["queues"]] == ["mail", "orders"]
    some = await caller.ok("GET", "/v1/stats?queue=orders&queue=mail")
    assert sorted(one["queue"] for one in some["queues"]) == ["mail", "orders"]


async def test_statistics_say_how_many_jobs_wait_behind_others_of_their_ordering_keys(caller: Caller) -> None:
    for _ in range(3):
        await caller.send("POST", f"{MAIL}/jobs?ordering_key=k", b"x")
    [counts] = (await caller.ok("GET", f"{MAIL}/stats"))["priorities"]
    assert (counts["pending"], counts["future"], counts["behind_key"]) == (3, 2, 2)


async def test_the_server_says_what_it_is(caller: Caller) -> None:
    server = await caller.ok("GET", "/v1/server")
    assert (server["version"], server["store_kind"], server["max_body_bytes"]) == (__version__, "memory", 100_000)
    assert (await caller.ok("GET", "/v1/cluster"))["servers"]
    assert await caller.ok("GET", "/v1/waiting-dequeues") == {"waiting": []}
