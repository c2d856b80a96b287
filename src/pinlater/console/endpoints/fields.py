"""Types and bounds of fields that several shapes have, and what all requests and all answers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


def doc(description: str, **bounds: Any) -> Meta:
    """The description of a field for callers, and the bounds of its values."""
    return Meta(description=description, **bounds)


I32_MAX = 2**31 - 1
MS_MAX = 2**53 - 1  # the largest integer that every JSON parser reads exactly

State = Literal["pending", "in_progress", "succeeded", "failed"]
Priority = Annotated[int, doc("1 is the highest.", ge=1, le=127)]
Limit = Annotated[int, doc("The largest number of jobs.", ge=1, le=I32_MAX)]
Key = Annotated[str, Meta(min_length=1)]
Attempts = Annotated[int, Meta(ge=1, le=I32_MAX)]
Moment = Annotated[int, Meta(ge=0, le=MS_MAX)]
Span = Annotated[int, Meta(ge=0, le=MS_MAX)]
RunAfter = Annotated[Moment | None, doc("When the job is due, at most 366 days ahead. Excludes `delay_ms`.")]
Delay = Annotated[Span | None, doc("The delay until the job is due, at most 366 days. Excludes `run_after_ms`.")]
Token = Annotated[
    str | None, doc("The claim token. Without it, the request applies to whichever worker holds the job.")
]
BodyText = Annotated[str | None, doc("The body as text; null if it is not UTF-8.")]
BodyBase64 = Annotated[str | None, doc("The body in base64 if it is not UTF-8, else null.")]
BodyMasked = Annotated[
    bool,
    doc(
        "The roles of the caller do not let it see the body, or parts of it: the body is empty, or JSON with `[masked]` in "
        "the place of values."
    ),
]
Descriptors = Annotated[Sequence[str], doc("The names of jobs, all of this queue.", min_length=1)]
OfShard = Annotated[
    Key | None, doc("Only jobs on this shard, named with or without the `s` of descriptors: `2` or `s2`.")
]
Bodies = Annotated[bool, doc("Includes the bodies of the jobs.")]
Future = Annotated[bool, doc("Selects pending jobs that are not due yet instead of those that are.")]
Incomplete = Annotated[bool, doc("A shard was unreachable, or a time limit made the answer shorter.")]


class AnswerShape(Struct, frozen=True, kw_only=True):
    """An answer, or a part of one."""


class RequestShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller sends: a body, a part of one, or the query of a URL."""


class Nothing(RequestShape, frozen=True, kw_only=True):
    """No fields."""


class QueuesQuery(RequestShape, frozen=True, kw_only=True):
    """Says which queues are asked about."""

    queue: Annotated[Sequence[str], doc("A queue; may be repeated. Without it: all queues.")] = ()


class PartitionNumberItem(AnswerShape, frozen=True, kw_only=True):
    """The number of partitions that a queue should have."""

    number: int
    automatic: Annotated[bool, doc("The servers chose the number, not an operator.")]
    since_ms: Annotated[
        int | None, doc("When the servers chose it, or an operator last changed the settings; null if unknown.")
    ]
