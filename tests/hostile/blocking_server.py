"""`python -m tests.hostile.blocking_server serve …`: a server whose getServerInfo keeps the event loop busy, to show that this is seen."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

from pinlater.cli.main import main
from pinlater.server.features import all as features
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.record import ServedMethod

BUSY_S = 3.0  # beyond what the slowest machine is allowed
_PLAIN = features.METHODS["getServerInfo"]


async def busy(service: Service, call: Any) -> Any:
    """The answer, after so much CPU time."""
    until_s = time.thread_time() + BUSY_S
    while time.thread_time() < until_s:
        pass
    return await _PLAIN.handle(service, call)


if __name__ == "__main__":
    cast("dict[str, ServedMethod]", features.METHODS)["getServerInfo"] = replace(_PLAIN, handle=busy)
    main()
