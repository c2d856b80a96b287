"""The servers behind the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from pinlater.console.shapes.fields import (
    AnswerShape,
)


class CallerItem(AnswerShape, frozen=True, kw_only=True):
    """What the servers let the caller do."""

    token_name: Annotated[str, Meta(description="Empty without a token.")]
    roles: Annotated[Sequence[str], Meta(description="As the token has them, without those that they include.")]
    queues: Annotated[Sequence[str], Meta(description="Patterns; `*` is any text.")]
    expires_at_ms: int | None


class ServerInfoAnswer(AnswerShape, frozen=True, kw_only=True):
    """The server that answered, with its bounds."""

    version: str
    features: Sequence[str]
    store_kind: str
    now_ms: int
    started_at_ms: int
    priority_levels: int
    max_body_bytes: int
    max_frame_bytes: int
    max_jobs_per_request: int
    max_descriptors_per_request: int
    max_wait_ms: int
    access: str
    caller: Annotated[CallerItem | None, Meta(description="null without access control.")]


class WaitingItem(AnswerShape, frozen=True, kw_only=True):
    """Long polls of one caller on one queue that wait on the server that answered."""

    queue: str
    source: str
    number: int


class WaitingAnswer(AnswerShape, frozen=True, kw_only=True):
    """The callers that wait for jobs."""

    waiting: Sequence[WaitingItem]


class ClusterServerItem(AnswerShape, frozen=True, kw_only=True):
    """A server of the shards, as the server that answered knows it."""

    address: str
    name: str
    slots: Annotated[Mapping[str, int], Meta(description="By shard.")]
    answers: Annotated[bool, Meta(description="It is the server that answered.")]
    heard: bool
    heard_ms: Annotated[int | None, Meta(description="How long ago it was heard; null if it never was.")]
    usable: bool
    unanswered_calls: int
    items_sent: int
    items_taken: int


class ClusterShardItem(AnswerShape, frozen=True, kw_only=True):
    """A shard with the owners of its slices."""

    name: str
    in_reach: bool
    version: Annotated[int, Meta(description="Grows with each change of the owners.")]
    owners: Annotated[Sequence[str], Meta(description="Addresses by slice; empty for none.")]
    misplaced: Annotated[Sequence[int], Meta(description="Slices that are about to get another owner.")]


class ForwardedItem(AnswerShape, frozen=True, kw_only=True):
    """Calls of one kind between the server that answered and others since its start."""

    kind: str
    calls_sent: int
    items_sent: int
    calls_taken: int
    items_taken: int


class FrontProcessItem(AnswerShape, frozen=True, kw_only=True):
    """A front process of the server that answered."""

    number: int
    calls_taken: Annotated[int, Meta(description="Since it connected.")]
    calls_under_way: int
    waiting_calls: Annotated[int, Meta(description="Of those under way: long polls and searches.")]
    untaken_bytes: Annotated[int, Meta(description="Of answers that it has not read.")]


class ClusterAnswer(AnswerShape, frozen=True, kw_only=True):
    """What the server that answered knows of the servers of its shards."""

    address: str
    servers: Sequence[ClusterServerItem]
    shards: Sequence[ClusterShardItem]
    forwarded: Sequence[ForwardedItem]
    moves: int
    answers_lost: int
    incomplete: bool
    front_processes: Sequence[FrontProcessItem]
