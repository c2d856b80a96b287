"""`make faults`: every fault in full length, on three databases of each kind in turn.

Ends with 1 at the first kind with a broken promise, and keeps all its logs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import time
from pathlib import Path

from tests.databases.servers import DatabaseServers
from tests.faults.builds import package_of
from tests.faults.catalogue import faults_of
from tests.faults.load import Pace
from tests.faults.stage import Stage
from tests.faults.stores import STORES
from tests.faults.verdict import FaultVerdict, judge, suffer

_NORMAL_S = 15.0
_SHARDS = 3


async def run(options: argparse.Namespace, kind: str, seed: int, folder: Path) -> list[FaultVerdict]:
    """The chosen faults that there are for this kind, `rounds` times, on one stage; what each showed."""
    faults = faults_of(kind)
    names = [name for name in options.fault or faults if name in faults]
    verdicts: list[FaultVerdict] = []
    with DatabaseServers() as database_servers:
        store = STORES[kind]
        databases = [await asyncio.to_thread(store.start, database_servers) for _ in range(_SHARDS)]
        async with Stage(
            folder,
            database_servers,
            store,
            databases,
            seed=seed,
            servers=options.servers,
            length=options.length,
            pace=Pace(
                options.rate,
                ordered=0.0 if options.older else options.ordered,  # shards with ordered jobs refuse older servers
                ordering_keys=options.keys,
                workers=options.workers,
            ),
            older=options.older,
        ) as stage:
            for number in range(options.rounds):
                for name in names:
                    verdict = await suffer(stage, faults[name], normal_s=_NORMAL_S)
                    verdicts.append(verdict)
                    print(f"{time.strftime('%H:%M:%S')} round {number + 1}, {verdict.text()}", flush=True)
                    if verdict.broken:
                        _keep(stage, folder)
                        return verdicts
            drained_s, broken = await judge(stage, everything=True)
            print(f"at the end: {len(broken)} broken promises, drained in {drained_s:.1f} s", flush=True)
            verdicts.append(FaultVerdict("the end", 0.0, drained_s, 0, 0, broken, [], stage.load.errors, {}))
            if broken:
                _keep(stage, folder)
    return verdicts


def _keep(stage: Stage, folder: Path) -> None:
    """The history and the databases' logs, beside our servers' own."""
    (folder / "history.jsonl").write_text("\n".join(stage.load.recorder.lines()))
    (folder / "places.json").write_text(
        json.dumps({name: place.database.address for name, place in stage.places.items()})
    )
    for name, place in stage.places.items():
        (folder / f"database-{name}.log").write_text(place.database.log_tail())


def main() -> None:
    """Says the seed, and runs on each kind."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--fault", action="append", help="only this one; may be repeated")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--length", type=float, default=1.0, help="0.2: everything lasts a fifth of its time")
    parser.add_argument("--rate", type=float, default=Pace().requests_per_s, help="enqueue requests a second")
    parser.add_argument(
        "--ordered", type=float, default=Pace().ordered, help="the share of requests with ordering keys"
    )
    parser.add_argument("--keys", type=int, default=Pace().ordering_keys, help="ordering keys of each queue")
    parser.add_argument("--workers", type=int, default=Pace().workers)
    parser.add_argument("--servers", type=int, default=2, help="servers of ours")
    parser.add_argument(
        "--kind", action="append", choices=list(STORES), help="only databases of this kind; may be repeated"
    )
    parser.add_argument("--seed", type=int, default=None, help="the seed a failed run printed")
    parser.add_argument(
        "--older",
        type=_checkout,
        metavar="CHECKOUT",
        help="the servers of another version run the code of this checkout, for example a git worktree of an older commit",
    )
    parser.add_argument("--dir", type=Path, default=Path("var/faults"))
    options = parser.parse_args()
    kinds = options.kind or list(STORES)
    known = {name: None for kind in kinds for name in faults_of(kind)}
    if unknown := set(options.fault or ()) - known.keys():
        parser.error(f"no fault of {', '.join(kinds)}: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    print(f"seed {seed}", flush=True)
    for kind in kinds:
        if not options.fault or faults_of(kind).keys() & set(options.fault):
            print(f"on {kind}", flush=True)
            on_one_kind(options, kind, seed)


def _checkout(text: str) -> Path:
    checkout = Path(text).resolve()
    if package_of(checkout) != checkout / "src" / "pinlater":
        raise argparse.ArgumentTypeError(f"{checkout} is no checkout: it has no src/pinlater")
    return checkout


def on_one_kind(options: argparse.Namespace, kind: str, seed: int) -> None:
    """Runs, and tells what is broken or slow. Raises SystemExit if anything is."""
    folder = options.dir / f"seed-{seed}-{kind}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    verdicts = asyncio.run(run(options, kind, seed, folder.resolve()))
    broken = [f"{verdict.name}: {each}" for verdict in verdicts for each in verdict.broken]
    slow = [f"{verdict.name}: {each}" for verdict in verdicts for each in verdict.slow]
    if broken or slow:
        raise SystemExit(
            "\n".join(
                ["BROKEN:", *broken[:50], *slow, f"repeat with --kind {kind} --seed {seed}; logs are in {folder}"]
            )
        )
    shutil.rmtree(folder)
    print(f"{len(verdicts) - 1} faults on {kind}, every promise kept")


if __name__ == "__main__":
    main()
