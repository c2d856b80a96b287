"""What servers ask for their coordination while nothing happens: `python -m bench.idle_coordination [--minutes 60] [--coordinator store]`.

Statements by the database's own log, changes in ZooKeeper by its transaction id: its counter goes up with each write of any client, and
with each session. Every statement on the tables of servers and owners counts as coordination, but for those of a slot: the renewal of its
lease, and the look whether it is still the server's on a connection that was made anew. With ZooKeeper, one such statement is left: each
server reads the servers' rows, which are those of the slots, on each shard once an hour, six times in all. It is no row of
`python -m bench`: an hour is long.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from bench.servers import PinLaterServer, serve
from pinlater.client import Client
from tests.databases.mariadb import MariaDb
from tests.databases.servers import DatabaseServers
from tests.databases.zookeeper import ZooKeeperEnsemble

_SERVERS, _SHARDS, _QUEUES = 3, 2, 20
# Servers look at each other more often while they are new, and gather slices two minutes after the last move.
_SETTLE_MINUTES = 4.0
_ENTRY = re.compile(
    r"^(?:\d+ +[\d:]+)?\t+ *\d+ (?:Query|Execute)\t((?:.*\n)(?:(?!(?:\d+ +[\d:]+)?\t).*\n)*)", re.MULTILINE
)
_LITERAL = re.compile(r"x'[0-9a-f]*'|_binary\s*'(?:[^'\\]|\\.)*'|'(?![a-z]+')(?:[^'\\]|\\.)*'|\b\d+\b", re.IGNORECASE)
_SLOTS = re.compile(r"^UPDATE servers SET seen_at_ms|\bwriters\b")
_COORDINATION = re.compile(r"\b(servers|programs|clocks|nodes)\b|'owners'")


def _shapes(log: str) -> Counter[str]:
    """How often each statement was sent, without its values."""
    return Counter(" ".join(_LITERAL.sub("?", each.group(1)).split())[:110] for each in _ENTRY.finditer(log))


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle_coordination", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--coordinator", choices=["zookeeper", "store"], default="zookeeper")
    arguments = parser.parse_args()
    say, pause = Console(width=160).print, threading.Event()
    with DatabaseServers() as databases, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ensemble = databases.make_zookeeper(3).start()
        log = Path(folder) / "general.log"
        database = databases.start(MariaDb, general_log=1, general_log_file=str(log))
        for server in _servers(stack, database, Path(folder), arguments.coordinator, f"{ensemble.address}/idle"):
            with Client(f"127.0.0.1:{server.port}") as client:
                for number in range(_QUEUES):
                    client.create_queue(f"queue{number}")
        pause.wait(_SETTLE_MINUTES * 60)
        before, offset = _transaction_id(ensemble), log.stat().st_size
        pause.wait(arguments.minutes * 60)
        transactions = _transaction_id(ensemble) - before
        with log.open("rb") as lines:
            lines.seek(offset)
            sent = _shapes(lines.read().decode(errors="replace"))
    slots = {shape for shape in sent if _SLOTS.search(shape)}
    others = {shape for shape in sent if _COORDINATION.search(shape)} - slots
    say(
        f"{arguments.minutes:g} idle minutes, {_SERVERS} servers, {_SHARDS} shards, {_QUEUES} queues: {arguments.coordinator}"
    )
    say(f"ZooKeeper's transactions: {transactions}")
    counts = [sum(sent[shape] for shape in shapes) for shapes in (sent, slots, others)]
    say("statements: {}; for slots {}; for coordination besides {}".format(*counts))
    for shape, count in sent.most_common():
        mark = "s" if shape in slots else "c" if shape in others else " "
        say(f"{count:8} {mark} {shape}", markup=False, highlight=False)


def _servers(
    stack: ExitStack, database: MariaDb, folder: Path, coordinator: str, zookeeper: str
) -> list[PinLaterServer]:
    entries = folder / "shards.json"
    master = f'{{"master": {{"host": "{database.host}", "port": {database.port}}}, "user": "{database.user}", "passwd": "PASSWORD"}}'
    shards = ", ".join(f'"shard{number}": {master}' for number in range(1, _SHARDS + 1))
    entries.touch(mode=0o600)
    entries.write_text(f"{{{shards}}}".replace("PASSWORD", database.password))
    settings = {"cluster.coordinator": coordinator, "host": "127.0.0.1"}
    if coordinator == "zookeeper":
        settings["cluster.zookeeper"] = zookeeper
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return [
        stack.enter_context(serve("--store", f"mysql:{entries}", *words, log=folder / f"server{number}.log"))
        for number in range(_SERVERS)
    ]


def _transaction_id(ensemble: ZooKeeperEnsemble) -> int:
    """The newest one that the leader knows."""
    found = re.search(r"Zxid: 0x([0-9a-f]+)", ensemble.leader().says("srvr"))
    assert found is not None
    return int(found.group(1), 16)


if __name__ == "__main__":
    main()
