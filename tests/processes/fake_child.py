"""Stands for a server process: speaks the line, serves nothing. Files in its folder say how it behaves, and what it was told."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path

import msgspec

from pinlater.server.main.processes.control_channel import (
    Failed,
    ServerHello,
    StatusAnswer,
    StatusRequest,
    Vitals,
    from_parent,
    receive_plan,
)
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.telemetry.numbers import look
from pinlater.supervision.channel import frame, read_frame


async def main(descriptor: int, folder: Path) -> int:
    line = socket.socket(fileno=descriptor)
    plan = receive_plan(line)
    starts = folder / f"starts-{plan.number}"
    start = int(starts.read_text()) + 1 if starts.exists() else 1
    starts.write_text(str(start))
    mode = (folder / f"mode-{plan.number}").read_text() if (folder / f"mode-{plan.number}").exists() else "serve"
    line.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=line)
    if mode == "fail":
        writer.write(frame(Failed("the store is away")))
        await writer.drain()
        return 1
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
    metrics = Metrics()
    metrics.queue("emails").enqueue = 10 * (plan.number + 1)
    metrics.gauge(
        "thrift-connections", lambda: plan.number + 1, prometheus="pinlater_connections", help="Open connections"
    )
    writer.write(frame(ServerHello()))
    while (body := await read_frame(reader)) is not None:
        message = from_parent.decode(body)
        if isinstance(message, StatusRequest):
            if mode == "deaf":
                continue
            ready = mode != "unready"
            reasons = [] if ready else ["shard 1: away"]
            vitals = Vitals(ready, reasons, {"state": "ready", "members": [1]}, 7, plan.number + 1, [])
            packed = msgspec.msgpack.encode(look(metrics, (), last_minute=False)())
            writer.write(frame(StatusAnswer(message.number, vitals, message.numbers == "all", msgspec.Raw(packed))))
            continue
        with (folder / f"orders-{plan.number}").open("a") as orders:
            orders.write(f"{message.what}\n")
        if message.what == "stop now" or (message.what == "stop" and mode != "slow"):
            return 0
    (folder / f"orphan-{plan.number}").touch()
    return 0


if __name__ == "__main__":
    folder, _, descriptor = sys.argv[1:]
    sys.exit(asyncio.run(main(int(descriptor), Path(folder))))
