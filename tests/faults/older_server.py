"""`python -m tests.faults.older_server serve ...`: a server as it was before queues had owners.

It looks for jobs in each shard by itself, wakes other servers by datagrams, and takes no connection from them.
"""

from __future__ import annotations

from typing import Any

from pinlater.cli.main import main
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.peer_listener import PeerListener
from pinlater.server.cluster.ownership.ownership import Ownership


async def _do_nothing(self: object, *_: Any, **__: Any) -> None:
    del self


for _owner, _name in ((PeerListener, "open"), (Ownership, "look")):
    setattr(_owner, _name, _do_nothing)
setattr(Forwarding, "know", lambda *_: None)  # noqa: B010 - mypy knows the types of methods

if __name__ == "__main__":
    main()
