"""`python -m tests.faults.older_server serve ...`: a server as it was before queues had owners.

It looks for jobs in each shard by itself, and neither makes connections to other servers nor takes any from them.
"""

from __future__ import annotations

from typing import Any

from pinlater.cli.main import main
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.peer_listener import PeerListener
from pinlater.server.cluster.ownership.ownership import Ownership
from tests.databases.ports import free_port


async def _do_nothing(self: object, *_: Any, **__: Any) -> None:
    del self


async def _listen_nowhere(self: object, host: str, port: int = 0) -> int:
    del self, host
    return port or free_port()


setattr(PeerListener, "open", _listen_nowhere)  # noqa: B010 - mypy knows the types of methods
setattr(Ownership, "look", _do_nothing)  # noqa: B010
setattr(Forwarding, "know", lambda *_: None)  # noqa: B010

if __name__ == "__main__":
    main()
