"""Failed attempts in groups."""

from __future__ import annotations

from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import like
from pinlater.console.shapes.failures import FailureGroupItem, FailuresAnswer, FailuresQuery
from pinlater.console.shapes.fields import Nothing


async def get_failures(call: ApiCall[FailuresQuery, Nothing]) -> FailuresAnswer:
    """Returns the failed attempts of some queues in groups that look alike, as the servers count them for 30 days. Reads no jobs."""
    found = await call.client.failures(*call.query.queue)
    return FailuresAnswer(groups=[like(FailureGroupItem, group) for group in found.groups], incomplete=found.incomplete)
