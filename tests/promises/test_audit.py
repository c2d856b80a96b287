"""getAudit: who changed what, read back in pages."""

from __future__ import annotations

import pytest

from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import Wire, ttypes


async def test_changes_are_read_back_newest_first_in_pages(here: Wire, running: RunningServer) -> None:
    await here.create("q")
    for method in ("pauseQueue", "resumeQueue"):
        running.clock.advance(ms=1)
        await here.call(method, queueName="q")

    first = await here.call("getAudit", request=ttypes.AuditRequest(limit=2))
    second = await here.call("getAudit", request=ttypes.AuditRequest(limit=2, continuation=first.continuation))

    assert [entry.operation for entry in first.entries] == ["resumeQueue", "pauseQueue"]
    assert {entry.operation for entry in second.entries} == {"createQueue"}
    assert not second.incomplete
    newest = first.entries[0]
    assert (newest.queueName, newest.who, newest.outcome, newest.jobs) == ("q", "no token", "ok", None)
    assert newest.atMillis == running.clock.now_ms()
    assert "audit" in (await here.call("getServerInfo")).features


async def test_entries_are_chosen_by_each_field(here: Wire, running: RunningServer) -> None:
    await here.create("q")
    await here.create("other")
    running.clock.advance(ms=1)
    await here.call("pauseQueue", queueName="q")

    async def found(**wanted: object) -> set[str]:
        answer = await here.call("getAudit", request=ttypes.AuditRequest(**wanted))
        return {entry.operation for entry in answer.entries}

    assert await found(queueName="q", operation="pauseQueue", who="no token") == {"pauseQueue"}
    assert await found(queueName="other") == {"createQueue"}
    assert await found(who="ops") == set()
    assert await found(sinceTimestampMillis=running.clock.now_ms()) == {"pauseQueue"}
    assert await found(untilTimestampMillis=running.clock.now_ms()) == {"createQueue"}


@pytest.mark.parametrize("wanted", [{"limit": 0}, {"limit": 501}, {"continuation": "what"}])
async def test_a_wrong_page_of_the_audit_is_refused(here: Wire, wanted: dict[str, object]) -> None:
    code = (await refused(here.call("getAudit", request=ttypes.AuditRequest(**wanted)))).code
    assert code == (400 if "continuation" in wanted else 500)
