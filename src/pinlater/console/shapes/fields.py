"""Types and bounds of fields that several shapes have, and what all requests and all answers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

I32_MAX = 2**31 - 1
MS_MAX = 2**53 - 1  # the largest integer that every JSON parser reads exactly

State = Literal["pending", "in_progress", "succeeded", "failed"]
Count = Annotated[int, Meta(ge=0, le=I32_MAX)]
Priority = Annotated[int, Meta(ge=1, le=127, description="1 is the highest.")]
OfPriority = Annotated[Priority | None, Meta(description="Only this priority; 1 is the highest.")]
Limit = Annotated[int, Meta(ge=1, le=I32_MAX, description="The largest number of jobs.")]
Key = Annotated[str, Meta(min_length=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Attempts = Annotated[int, Meta(ge=1, le=I32_MAX)]
Moment = Annotated[int, Meta(ge=0, le=MS_MAX)]
Span = Annotated[int, Meta(ge=0, le=MS_MAX)]
RunAfter = Annotated[
    Moment | None, Meta(description="The job is due from this time on, at most 366 days ahead. Not with `delay_ms`.")
]
Delay = Annotated[
    Span | None, Meta(description="The job is due after this span, at most 366 days. Not with `run_after_ms`.")
]
Token = Annotated[
    str | None, Meta(description="The claim token. Without it the request counts for any holder of the job.")
]
Regex = Annotated[str | None, Meta(description="Only jobs in whose body this is found (RE2 syntax).")]
BodyWithText = Annotated[
    Key | None, Meta(description="Only jobs with this text in their body, ignoring case. Not with `regex`.")
]
BodyText = Annotated[str | None, Meta(description="The body as text; null if it is not UTF-8.")]
BodyBase64 = Annotated[str | None, Meta(description="The body in base64 if it is not UTF-8, else null.")]
BodyMasked = Annotated[
    bool,
    Meta(
        description="The roles of the caller do not let it see the body, or parts of it: the body is empty, or JSON with `[masked]` in "
        "the place of values."
    ),
]
Descriptors = Annotated[Sequence[str], Meta(min_length=1, description="The names of jobs, all of this queue.")]
OfTasks = Annotated[Sequence[Key], Meta(description="Only jobs of this task; may be repeated for several.")]
OfHeaders = Annotated[Sequence[str], Meta(description="Only jobs with this header, as `NAME=VALUE`; may be repeated.")]
WithError = Annotated[
    str, Meta(description="Only jobs with this text in the type or text of their error, ignoring case.")
]
MinAttempts = Annotated[
    int, Meta(ge=0, le=I32_MAX, description="Only jobs that have begun at least this many attempts.")
]
EnqueuedFrom = Annotated[Moment | None, Meta(description="Only jobs that were enqueued then or later.")]
EnqueuedBefore = Annotated[Moment | None, Meta(description="Only jobs that were enqueued before.")]
OfGroup = Annotated[str, Meta(description="Only jobs whose last failed attempt is in this group of failures.")]
OfShard = Annotated[
    Key | None, Meta(description="Only jobs on this shard, named with or without the `s` of descriptors: `2` or `s2`.")
]
Incomplete = Annotated[bool, Meta(description="A shard was unreachable, or a time limit made the answer shorter.")]


class AnswerShape(Struct, frozen=True, kw_only=True):
    """An answer, or a part of one."""


class RequestShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller sends: a body, a part of one, or the query of a URL."""


class Nothing(RequestShape, frozen=True, kw_only=True):
    """No fields."""


class PartitionNumberItem(AnswerShape, frozen=True, kw_only=True):
    """How many partitions a queue is to have."""

    number: int
    automatic: Annotated[bool, Meta(description="The servers chose it, and no operator.")]
    since_ms: Annotated[
        int | None,
        Meta(description="When they chose it, or when an operator last changed the settings; null: not known."),
    ]
