"""`python -m tests.hostile.blocking_server serve …`: a server whose getServerInfo keeps the event loop busy, to show that this is seen."""

from __future__ import annotations

import time
from typing import Any

from pinlater.cli.main import main
from pinlater.server.operations.service import Service
from pinlater.server.thrift import handlers

BUSY_S = 3.0  # beyond what the slowest machine is allowed
_get_server_info = handlers.HANDLERS["getServerInfo"]


async def busy(service: Service, call: Any) -> Any:
    """The answer, after so much CPU time."""
    until_s = time.thread_time() + BUSY_S
    while time.thread_time() < until_s:
        pass
    return await _get_server_info(service, call)


if __name__ == "__main__":
    handlers.HANDLERS["getServerInfo"] = busy
    main()
