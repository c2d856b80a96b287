"""Failed attempts in groups."""

from __future__ import annotations

from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import like
from pinlater.console.shapes.failures import FailureGroupItem, FailuresAnswer, FailuresQuery, MuteRequest
from pinlater.console.shapes.fields import Nothing


async def get_failures(call: ApiCall[FailuresQuery, Nothing]) -> FailuresAnswer:
    """Returns the failed attempts of some queues in groups that look alike, as the servers count them for 30 days. Reads no jobs."""
    found = await call.client.failures(*call.query.queue)
    return FailuresAnswer(groups=[like(FailureGroupItem, group) for group in found.groups], incomplete=found.incomplete)


async def mute_failures(call: ApiCall[Nothing, MuteRequest]) -> None:
    """Mutes a group of failures of the queue: it comes last then, and its failures still count."""
    await call.client.mute_failures(call.queue, call.body.group, until_ms=call.body.until_ms)
