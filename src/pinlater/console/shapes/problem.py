"""The shape of an error."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, as RFC 9457 describes it, with the words of the protocol."""

    type: Annotated[str, Meta(description="`urn:pinlater:error:` and `reason`.")]
    title: str
    status: int
    detail: Annotated[str, Meta(description="A sentence for people.")]
    code: Annotated[str, Meta(description="The name of the error code of the protocol; empty if no server answered.")]
    reason: Annotated[str, Meta(description="A word for programs, finer than the code.")]
    # No default: it is answered in any case.
    retryable: Annotated[bool, Meta(description="Whether the same request may succeed later.")]
    retry_after_ms: int | None = None
    field: Annotated[str | None, Meta(description="The field, parameter or header that is wrong.")] = None
