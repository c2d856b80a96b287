"""Ports for servers that must come back on the same one."""

from __future__ import annotations

import random
import socket
from collections import deque

# Below the ports that Linux gives to outgoing connections: one of those must not sit on a server's port while the server is down.
_RANGE = range(20_000, 32_000)
_TRIES = 200
# Not given twice: nobody may listen on them yet.
_given: deque[int] = deque(maxlen=1_000)


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens now. Drawn outside pytest's seed, so that two runs of one seed don't meet."""
    draw = random.SystemRandom()
    for _ in range(_TRIES):
        port = draw.choice(_RANGE)
        if port in _given:
            continue
        try:
            with socket.create_server(("127.0.0.1", port)):
                _given.append(port)
                return port
        except OSError:
            continue
    raise RuntimeError(f"no free port in {_TRIES} tries")
