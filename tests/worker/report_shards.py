"""A scripted server with two shards, which tells each item's error by itself, or, as servers before per-item errors do, refuses a whole
request for one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pinlater.domain.clock import SystemClock
from pinlater.domain.descriptor import shard_of
from tests import structs as t
from tests.client.fake_server import FakeServer

APPLIED, STALE = 0, 2


def info(_: Any) -> t.ServerInfo:
    """The answer that an original server doesn't give."""
    return t.ServerInfo("9", [], "memory", SystemClock().now_ms(), 1, 3, 1, 1, 1, 1, 1)


class ReportShards(FakeServer):
    """Hands out the jobs that the test gives it. A job's name is its token and its body.

    `away`: unreachable shards; `bad`: jobs of which it refuses the reports; `outcome`: of all others. `lost`: jobs whose claims have ended,
    as heartbeats are told. `acks_arrive`: otherwise all shards are unreachable, but for heartbeats.
    """

    def __init__(self, *, per_item: bool = True) -> None:
        super().__init__(
            getServerInfo=info,
            dequeueJobs=self.dequeue,
            ackJobs=lambda arguments: self.acked(arguments.request),
            releaseJobs=lambda arguments: self.answer(arguments.request.claims, arguments.request.per_item_errors),
            checkpointJobsFenced=self.checkpoint,
            heartbeatClaims=self.heartbeat,
        )
        self.per_item = per_item
        self.waiting: dict[str, t.DequeueMetadata] = {}
        self.names: dict[str, bytes] = {}
        self.away: set[str] = set()
        self.bad: set[str] = set()
        self.outcome = APPLIED
        self.requests: list[str] = []
        self.riding: list[str] = []
        self.applied: list[str] = []
        self.acks_arrive = True
        self.lost: set[str] = set()
        self.beaten: list[str] = []
        self.bodies: dict[str, bytes | None] = {}
        self.failed: dict[str, str] = {}

    def give(self, names: str, shard: str = "1", task: str = "") -> None:
        """Puts a job for each letter into the queue."""
        for name in names:
            descriptor = f"q:s{shard}:p1:{ord(name)}"
            headers = {"pinlater-task": task} if task else {}
            self.names[descriptor] = name.encode()
            self.waiting[descriptor] = t.DequeueMetadata(
                token=name, attempts_allowed=3, attempts_remaining=3, headers=headers
            )

    async def dequeue(self, arguments: Any) -> t.DequeueResponse:
        acks, request = arguments.request.acks, arguments.request
        if acks is not None:
            self.riding += [ack.token for ack in acks.succeeded]
        results = None if acks is None else self.acked(acks)
        if not self.waiting:
            await asyncio.sleep((request.wait_ms or 0) / 1000)
        given = {descriptor: self.waiting.pop(descriptor) for descriptor in list(self.waiting)[: request.limit]}
        return t.DequeueResponse(
            jobs={descriptor: self.names[descriptor] for descriptor in given}, metadata=given, ack_outcomes=results
        )

    def acked(self, request: Any) -> list[t.AckResult]:
        self.failed |= {ack.token: ack.error_text or "" for ack in request.failed or ()}
        return self.answer([*(request.succeeded or ()), *(request.failed or ())], request.per_item_errors)

    def checkpoint(self, arguments: Any) -> list[t.AckResult]:
        items = arguments.request.requests
        assert all(item.move_to_pending for item in items)
        results = self.answer(items, arguments.request.per_item_errors)
        self.bodies |= {item.token: item.new_body for item in items}
        return results

    def answer(self, items: Sequence[Any], per_item: bool | None) -> list[t.AckResult]:
        assert per_item
        tokens = [item.token for item in items]
        self.requests.append("".join(tokens))
        if self.bad.intersection(tokens):
            raise t.PinLaterException(400, "A new body of 9 bytes", "BODY_TOO_LARGE", False)
        away = [not self.acks_arrive or shard_of(item.descriptor) in self.away for item in items]
        self._refuse_whole(away)
        self.applied += [token for token, lost in zip(tokens, away, strict=True) if not lost]
        return [_result(item, self.outcome, lost) for item, lost in zip(items, away, strict=True)]

    def heartbeat(self, arguments: Any) -> list[t.AckResult]:
        claims = arguments.request.claims
        away = [shard_of(claim.descriptor) in self.away for claim in claims]
        self._refuse_whole(away)
        self.beaten += [claim.token for claim, lost in zip(claims, away, strict=True) if not lost]
        outcomes = [STALE if claim.token in self.lost else APPLIED for claim in claims]
        return [_result(*each) for each in zip(claims, outcomes, away, strict=True)]

    def _refuse_whole(self, away: Sequence[bool]) -> None:
        if any(away) and not self.per_item:
            raise t.PinLaterException(502, "a shard is unreachable", "SHARD_UNREACHABLE", True)


def _result(item: Any, outcome: int, away: bool) -> t.AckResult:
    if away:
        return t.AckResult(item.descriptor, 4, error_code=502, error_detail="SHARD_UNREACHABLE", retryable=True)
    return t.AckResult(item.descriptor, outcome)
