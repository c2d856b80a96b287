"""What a worker tells the server of a claim, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pinlater.client.values import Ack, Checkpoint, Claim
from pinlater.worker._outbox.leases import Lease
from pinlater.worker.counts import TaskCounts

ACKS_PER_REQUEST_MAX = 1_000
# New bodies of rescheduled jobs in one request.
_BODY_BYTES_PER_REQUEST_MAX = 4 * 1024 * 1024


class GiveBack(NamedTuple):
    """Ends a claim without using up an attempt; the job is due again after `delay_ms`."""

    claim: Claim
    delay_ms: int


Message = Ack | GiveBack | Checkpoint


class Reported(Lease, Protocol):
    """A claimed job whose claim ends with a message to the server, and is renewed until the server has taken it: it must not time out
    while the message can't be delivered. Equal to itself only.

    `message`: is set once. `maybe_applied`: an earlier try may have reached the server. `is_counted`: the attempt that ends with this ack
    has been counted in `counts`.
    """

    message: Message
    maybe_applied: bool
    is_counted: bool

    @property
    def counts(self) -> TaskCounts | None: ...


def kind_of(message: Message) -> tuple[type, int]:
    """Messages of one kind fit in one request, which has one delay for all claims that it releases."""
    return type(message), message.delay_ms if isinstance(message, GiveBack) else 0


def mark_maybe_applied(reports: Sequence[Reported]) -> None:
    """A try to send these has failed, and may have reached the server."""
    for report in reports:
        report.maybe_applied = True


def first_request(reports: Sequence[Reported]) -> list[Reported]:
    """The first reports that fit in one request."""
    kind, size, taken = kind_of(reports[0].message), 0, list[Reported]()
    for report in reports:
        size += len(report.message.new_body or b"") if isinstance(report.message, Checkpoint) else 0
        too_large = size > _BODY_BYTES_PER_REQUEST_MAX and bool(taken)
        if too_large or len(taken) >= ACKS_PER_REQUEST_MAX or kind_of(report.message) != kind:
            break
        taken.append(report)
    return taken


def acks_of(reports: Sequence[Reported]) -> list[Ack]:
    """The acks among these."""
    return [report.message for report in reports if isinstance(report.message, Ack)]
