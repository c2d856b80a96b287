"""Settings of a server whose clock a test advances."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from pinlater.server.config.settings import Settings
from pinlater.server.thrift.settings import ThriftSettings


def turned(*, thrift: ThriftSettings | None = None, **others: Any) -> Settings:
    """Settings with these tables and keys, for the host `host` and any free port.

    A clock that a test advances looks like a server that stood still, so no time counts as a standstill.
    """
    without_standstill = replace(thrift or ThriftSettings(port=0), standstill_s=math.inf)
    return Settings(advertised_host="host", thrift=without_standstill, **others)
