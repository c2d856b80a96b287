"""Settings of a server whose clock a test advances."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from pinlater.server.config.settings import Settings
from pinlater.server.thrift.settings import ThriftSettings


def turned(*, thrift: ThriftSettings | None = None, **others: Any) -> Settings:
    """Settings with these tables and keys, on any free port. No advance of the clock counts as a standstill of the server."""
    return Settings(thrift=replace(thrift or ThriftSettings(port=0), standstill_s=math.inf), **others)
