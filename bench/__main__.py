"""The command: `python -m bench [--full] [--quick] [--only NAME]` and `python -m bench compare [OLD NEW]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from bench import table
from bench.backlog import backlog
from bench.busy_loop import busy_loop
from bench.results import RESULTS_DIR, Results, RowResult, machine_facts, read_results
from bench.sdk import client_sync, enqueue_many, worker_async, worker_threads
from bench.throughput import claim_batched, claim_single, enqueue_batched, enqueue_single, request_keys, steady
from bench.waiting import idle_waits, pickup
from bench.workplace import FULL_BACKLOG, QUICK, Sizes, Workplace

ROWS: dict[str, Callable[[Workplace], RowResult]] = {
    "enqueue_single": enqueue_single,
    "enqueue_batched": enqueue_batched,
    "request_keys": request_keys,
    "claim_single": claim_single,
    "claim_batched": claim_batched,
    "steady": steady,
    "backlog": backlog,
    "pickup": pickup,
    "idle_waits": idle_waits,
    "busy_loop": busy_loop,
    "worker_async": worker_async,
    "worker_threads": worker_threads,
    "client_sync": client_sync,
    "enqueue_many": enqueue_many,
}


def measure(place: Workplace, names: Sequence[str], options: dict[str, object]) -> Results:
    """The rows, one after another; one that fails is reported as failed and keeps no other from running."""
    results = Results(machine_facts(place.folder), {**options, "sizes": asdict(place.sizes)})
    for name in names:
        started = time.monotonic()
        place.say(f"{name} …")
        try:
            row = ROWS[name](place)
        except Exception as error:  # noqa: BLE001 the other rows are still worth having
            row = RowResult(name, name, failed=f"{type(error).__name__}: {error}"[:2000])
        row.notes.append(f"took {time.monotonic() - started:.0f} s")
        results.rows.append(row)
    return results


def run(arguments: Sequence[str], console: Console) -> int:
    """`python -m bench`: 0 if every row was measured, 1 if one failed. Missing a goal is a finding, not a failure."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures the service on this machine.")
    parser.add_argument(
        "--quick", action="store_true", help="one iteration of everything, in seconds; figures mean nothing"
    )
    parser.add_argument("--full", action="store_true", help="5 million waiting, future and finished jobs each")
    parser.add_argument("--only", action="append", choices=ROWS, metavar="NAME", help=f"one of: {', '.join(ROWS)}")
    parser.add_argument("--repeats", type=int, help="runs of each row (default 5)")
    parser.add_argument("--dir", type=Path, default=Path("var/bench"), help="where the store files go: choose the disk")
    parser.add_argument("--output", type=Path, default=RESULTS_DIR / "local.json", help="where the results go")
    parser.add_argument(
        "--profile", action="store_true", help="print where the server's CPU time went (figures suffer)"
    )
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    if options.full:
        sizes = replace(sizes, backlog=FULL_BACKLOG)
    if options.repeats:
        sizes = replace(sizes, repeats=options.repeats)
    options.dir.mkdir(parents=True, exist_ok=True)
    place = Workplace(options.dir, sizes, say=console.print, profile=options.profile)
    results = measure(
        place, options.only or list(ROWS), {"full": options.full, "quick": options.quick, "profile": options.profile}
    )
    results.write(options.output)
    table.show(results, console)
    console.print(f"written to {options.output}")
    return 1 if any(row.failed for row in results.rows) else 0


def run_compare(arguments: Sequence[str], console: Console) -> int:
    """`python -m bench compare`: 1 with --strict where a figure got worse by more than the noise."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description="Two results side by side.")
    parser.add_argument("old", type=Path, nargs="?", help="default: the newest committed results")
    parser.add_argument(
        "new", type=Path, nargs="?", default=RESULTS_DIR / "local.json", help="default: the last run here"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a figure got worse by more than a tenth")
    options = parser.parse_args(arguments)
    old = options.old or newest_committed()
    worse = table.compare(read_results(old), read_results(options.new), console)
    if worse:
        console.print(f"[red]worse by more than {table.NOISE:.0%}: {', '.join(worse)}[/]")
    return 1 if worse and options.strict else 0


def newest_committed() -> Path:
    """The newest results file that is not this machine's own last run."""
    candidates = [path for path in RESULTS_DIR.glob("*.json") if not path.name.startswith("local")]
    if not candidates:
        raise SystemExit(f"no committed results in {RESULTS_DIR}; name two files")
    return max(candidates, key=lambda path: read_results(path).machine["at"])


def main() -> None:
    """Chooses the command."""
    console = Console()
    if sys.argv[1:2] == ["compare"]:
        raise SystemExit(run_compare(sys.argv[2:], console))
    raise SystemExit(run(sys.argv[1:], console))


if __name__ == "__main__":
    main()
