"""The caller of a call, as it describes itself: none of it is proven."""

from __future__ import annotations

from pinlater.domain.caller_address import named_address
from pinlater.wire.generated import structs

_SOURCE_SHOWN = 120  # characters of a source before an address


def named_source(context: structs.RequestContext) -> str:
    """Returns the name that the caller gives itself, and the address of the client for which it made the call."""
    address = named_address(context.caller_address or "")
    return f"{context.source[:_SOURCE_SHOWN]} for {address} (unverified)" if address else context.source
