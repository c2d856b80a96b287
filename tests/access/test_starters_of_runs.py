"""Callers that start a bulk run or pause a queue: a source is only what callers call themselves, and passes for no token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pinlater.client import AsyncClient, BulkAction, BulkOrder, BulkRun, JobState
from pinlater.domain.access import Role
from pinlater.domain.job_filter import JobFilter
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.wire.generated import structs as types
from pinlater.wire.generated.structs import AuditEntry
from tests.access.conftest import GuardedServer
from tests.access.test_audit_of_callers import entries
from tests.access.test_roles_over_thrift import NAME, TokenSender
from tests.service.shown_runs import ShownRuns
from tests.service.test_bulk_runs import ended

OF_TOKEN = "vm-1 (token ops)"


async def run_by(guarded: GuardedServer, token: str, source: str) -> tuple[BulkRun, AuditEntry]:
    """A run to its end, and the entry of this."""
    async with AsyncClient(guarded.address, token=token, source=source, wait_for_servers=False) as client:
        started = await client.start_bulk_run(BulkOrder("other", BulkAction.DELETE, JobFilter(JobState.PENDING)))
    await ended(ShownRuns(guarded.core.service.of(BulkRuns)), started)
    [entry] = await entries(guarded, operation="bulkRun")
    return started, entry


async def test_the_end_of_a_run_is_audited_under_the_token_that_started_it(guarded: GuardedServer) -> None:
    run, entry = await run_by(guarded, guarded.token(Role.OPERATE, name="ops"), "vm-1")
    assert run.who == OF_TOKEN
    assert (entry.who, entry.source, tuple(entry.roles)) == ("ops", "vm-1", ("operate",))
    assert [each.operation for each in await entries(guarded, who="ops")] == ["bulkRun", "startBulkRun"]


async def test_a_caller_without_a_token_that_calls_itself_as_one_with_is_told_apart(
    start: Callable[..., Awaitable[GuardedServer]],
) -> None:
    guarded = await start(Role.OPERATE)
    guarded.token(Role.OPERATE, name="ops")
    run, entry = await run_by(guarded, "", OF_TOKEN)
    assert run.who == f"{OF_TOKEN} (no token)"
    assert (entry.who, entry.source) == ("no token", OF_TOKEN)
    caller = await TokenSender.connect(guarded)
    await caller.call_as(types.RequestContext(OF_TOKEN), "pauseQueue", queue="other")
    told = await caller.call("explainJob", None, queue="other", descriptor=NAME.replace("mail_new", "other"))
    assert told.value.queue.paused_by == f"{OF_TOKEN} (no token)"
    caller.close()


async def test_where_there_are_no_tokens_a_source_is_shown_as_it_is(
    start: Callable[..., Awaitable[GuardedServer]],
) -> None:
    run, entry = await run_by(await start(Role.OPERATE), "", "vm-1")
    assert (run.who, entry.who, entry.source) == ("vm-1", "no token", "vm-1")
