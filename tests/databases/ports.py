"""Ports for servers that must come back on the same one."""

from __future__ import annotations

import os
import random
import socket
from collections import deque

# Below the ports that Linux gives to outgoing connections: one of those must not sit on a server's port while the server is down.
_RANGE = range(20_000, 32_000)
_WORKERS_MAX = 64
_TRIES = 200
# Not drawn again soon: their servers may not listen yet. About half of a worker's ports.
_given: deque[int] = deque(maxlen=len(_RANGE) // _WORKERS_MAX // 2)


def own_ports(worker: str) -> range:
    """The ports of one pytest-xdist worker ("gw3"; "" without xdist: all). Two workers never draw the same port.

    Raises `RuntimeError` for a worker that is left without ports: one after the first 64, those that replaced crashed ones included.
    """
    if not worker:
        return _RANGE
    number, share = int(worker.removeprefix("gw")), len(_RANGE) // _WORKERS_MAX
    if number >= _WORKERS_MAX:
        raise RuntimeError(f"no ports are left for {worker}: run at most {_WORKERS_MAX} workers (make test WORKERS=16)")
    return _RANGE[share * number :][:share]


def free_port() -> int:
    """A port of 127.0.0.1 that is free now. Drawn outside pytest's seed, so that two runs of one seed don't meet."""
    draw = random.SystemRandom()
    ports = own_ports(os.environ.get("PYTEST_XDIST_WORKER", ""))
    for _ in range(_TRIES):
        port = draw.choice(ports)
        if port in _given:
            continue
        try:
            with socket.create_server(("127.0.0.1", port)):
                _given.append(port)
                return port
        except OSError:
            continue
    raise RuntimeError(f"no free port in {_TRIES} tries")
