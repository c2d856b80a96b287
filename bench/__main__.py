"""The command: `python -m bench [--store mysql|redis] [--full] [--quick] [--only NAME]` and `python -m bench compare [OLD NEW]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from bench import table
from bench.backlog import backlog
from bench.benchmark_run import FULL_BACKLOG, QUICK, BenchmarkRun, Sizes
from bench.busy_loop import busy_loop
from bench.cluster import cluster, cluster_owners, cluster_queues, forwarded
from bench.console_pages import console_pages
from bench.garbage import garbage
from bench.memory import memory
from bench.mysql_stores import MysqlStores
from bench.pickup_elsewhere import pickup_elsewhere
from bench.redis_stores import RedisStores
from bench.results import RESULTS_DIR, Results, RowResult, machine_facts, read_results
from bench.sdk import client_sync, enqueue_many, worker_async, worker_threads
from bench.several_shards import idle_shards, two_shards
from bench.sqlite_stores import SqliteStores
from bench.statements import statements
from bench.stores import BenchmarkStores
from bench.throughput import (
    claim_batched,
    claim_single,
    enqueue_batched,
    enqueue_single,
    fail_batched,
    fail_single,
    ordering_keys,
    request_keys,
    steady,
)
from bench.waiting import idle_waits, pickup
from bench.wire_cost import wire_cost

Row = Callable[[BenchmarkRun], RowResult]
_SQLITE: dict[str, Row] = {
    "wire_cost": wire_cost,
    "enqueue_single": enqueue_single,
    "enqueue_batched": enqueue_batched,
    "request_keys": request_keys,
    "claim_single": claim_single,
    "claim_batched": claim_batched,
    "fail_single": fail_single,
    "fail_batched": fail_batched,
    "ordering_keys": ordering_keys,
    "steady": steady,
    "backlog": backlog,
    "pickup": pickup,
    "idle_waits": idle_waits,
    "busy_loop": busy_loop,
    "worker_async": worker_async,
    "worker_threads": worker_threads,
    "client_sync": client_sync,
    "enqueue_many": enqueue_many,
    "console_pages": console_pages,
}
# What only the service does, whatever it stores in, is measured on SQLite.
_MYSQL: dict[str, Row] = {
    "wire_cost": wire_cost,
    "enqueue_single": enqueue_single,
    "enqueue_batched": enqueue_batched,
    "claim_single": claim_single,
    "claim_batched": claim_batched,
    "fail_single": fail_single,
    "fail_batched": fail_batched,
    "ordering_keys": ordering_keys,
    "backlog": backlog,
    "garbage": garbage,
    "two_shards": two_shards,
    "cluster": cluster,
    "cluster_queues": cluster_queues,
    "cluster_owners": cluster_owners,
    "forwarded": forwarded,
    "idle_shards": idle_shards,
    "pickup": pickup,
    "pickup_elsewhere": pickup_elsewhere,
    "statements": statements,
    "console_pages": console_pages,
}
_REDIS: dict[str, Row] = {
    "wire_cost": wire_cost,
    "enqueue_single": enqueue_single,
    "enqueue_batched": enqueue_batched,
    "claim_single": claim_single,
    "claim_batched": claim_batched,
    "fail_single": fail_single,
    "fail_batched": fail_batched,
    "ordering_keys": ordering_keys,
    "pickup": pickup,
    "backlog": backlog,
    "memory": memory,
    "cluster": cluster,
    "cluster_queues": cluster_queues,
    "cluster_owners": cluster_owners,
    "forwarded": forwarded,
}
ROWS = {"sqlite": _SQLITE, "mysql": _MYSQL, "redis": _REDIS}
# With --quick no row waits until a server looks for garbage or for peers.
QUICK_MAINTENANCE = ("--set", "maintenance.garbage_interval_ms=200", "--set", "maintenance.refresh_interval_ms=200")


@contextmanager
def open_stores(kind: str, folder: Path, *, quick: bool) -> Iterator[BenchmarkStores]:
    """The stores of a run; what runs for them ends with it. `quick`: a database server with small sizes."""
    if kind == "sqlite":
        yield SqliteStores(folder)
        return
    with RedisStores(folder) if kind == "redis" else MysqlStores(folder, quick=quick) as stores:
        yield stores


def measure(place: BenchmarkRun, names: Sequence[str], options: dict[str, object]) -> Results:
    """The rows, one after another; one that fails is reported as failed and keeps no other from running."""
    facts = machine_facts(place.folder, place.stores.facts())
    results = Results(facts, {**options, "sizes": asdict(place.sizes)})
    rows = ROWS[place.stores.kind]
    for name in names:
        started = time.monotonic()
        place.say(f"{name} …")
        try:
            row = rows[name](place)
        except Exception as error:  # noqa: BLE001 the other rows are still worth having
            row = RowResult(name, name, failed=f"{type(error).__name__}: {error}"[:2000])
        row.notes.append(f"took {time.monotonic() - started:.0f} s")
        results.rows.append(row)
    return results


def run(arguments: Sequence[str], console: Console) -> int:
    """`python -m bench`: 0 if every row was measured, 1 if one failed. Missing a goal is a finding, not a failure."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures the service on this machine.")
    _add_store(parser)
    parser.add_argument(
        "--quick", action="store_true", help="one iteration of everything, in seconds; figures mean nothing"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="5 million waiting, future and finished jobs each; with mysql 10, with redis 2 million",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help=f"one of: {', '.join(_all_names())}")
    parser.add_argument("--repeats", type=int, help="runs of each row (default 5)")
    parser.add_argument("--dir", type=Path, default=Path("var/bench"), help="where the stores go: choose the disk")
    parser.add_argument("--output", type=Path, help="where the results go (default bench/results/local.json)")
    parser.add_argument(
        "--profile", action="store_true", help="print where the server's CPU time went (figures suffer)"
    )
    options = parser.parse_args(arguments)
    problems = [
        _not_there(name, options.store) for name in dict.fromkeys(options.only or ()) if name not in ROWS[options.store]
    ]
    if problems:
        parser.exit(2, "".join(f"{each}\n" for each in problems))
    sizes = QUICK if options.quick else Sizes()
    if options.full:
        sizes = replace(sizes, backlog=FULL_BACKLOG[options.store])
    if options.repeats:
        sizes = replace(sizes, repeats=options.repeats)
    options.dir.mkdir(parents=True, exist_ok=True)
    output = options.output or own_results(options.store)
    with open_stores(options.store, options.dir, quick=options.quick) as stores:
        options_of_servers = QUICK_MAINTENANCE if options.quick else ()
        place = BenchmarkRun(options.dir, stores, sizes, console.print, options_of_servers, profile=options.profile)
        results = measure(
            place,
            options.only or list(ROWS[options.store]),
            {"full": options.full, "quick": options.quick, "profile": options.profile},
        )
    results.write(output)
    table.show(results, console)
    console.print(f"written to {output}")
    return 1 if any(row.failed for row in results.rows) else 0


def _all_names() -> Sequence[str]:
    return list(dict.fromkeys(name for rows in ROWS.values() for name in rows))


def _not_there(name: str, store: str) -> str:
    """Why the store has no row of that name, and what has it."""
    stores = [each for each, rows in ROWS.items() if name in rows]
    if not stores:
        return f"there is no row {name}; rows with {store}: {', '.join(ROWS[store])}"
    commands = " or ".join(f'make bench STORE={each} ARGS="--only {name}"' for each in stores)
    return f"the row {name} is not measured with {store}: {commands}"


def run_compare(arguments: Sequence[str], console: Console) -> int:
    """`python -m bench compare`: 1 with --strict where a figure got worse by more than the noise."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description="Two results side by side.")
    _add_store(parser)
    parser.add_argument("old", type=Path, nargs="?", help="default: the newest committed results of the store")
    parser.add_argument("new", type=Path, nargs="?", help="default: the last run of the store here")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a figure got worse by more than a tenth")
    options = parser.parse_args(arguments)
    old, new = options.old or newest_committed(options.store), options.new or own_results(options.store)
    worse = table.compare(read_results(old), read_results(new), console)
    if worse:
        console.print(f"[red]worse by more than {table.NOISE:.0%}: {', '.join(worse)}[/]")
    return 1 if worse and options.strict else 0


def own_results(store: str) -> Path:
    """Where this machine's last run with this store is."""
    return RESULTS_DIR / ("local.json" if store == "sqlite" else f"local-{store}.json")


def newest_committed(store: str) -> Path:
    """The newest results file of the store that is not this machine's own last run."""
    machines = {
        path: read_results(path).machine for path in RESULTS_DIR.glob("*.json") if not path.name.startswith("local")
    }
    candidates = [path for path, machine in machines.items() if machine["store"] == store]
    if not candidates:
        raise SystemExit(f"no committed results of {store} in {RESULTS_DIR}; name two files")
    return max(candidates, key=lambda path: str(machines[path]["at"]))


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", choices=ROWS, default="sqlite", help="what the jobs are kept in (default sqlite)")


def main() -> None:
    """Chooses the command."""
    console = Console()
    if sys.argv[1:2] == ["compare"]:
        raise SystemExit(run_compare(sys.argv[2:], console))
    raise SystemExit(run(sys.argv[1:], console))


if __name__ == "__main__":
    main()
