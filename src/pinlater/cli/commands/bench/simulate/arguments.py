"""The options of `pinlater bench simulate`, and the parsing of their values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinlater.cli import options
from pinlater.domain.durations import duration_text

if TYPE_CHECKING:
    from pinlater.simulation.scenario import PlannedFault, QueueLoad, Scenario

_QUEUE = "jobs"
_RATE = 10.0
_NUMBERS_MAX = 100
SEED_MAX = 2**31 - 1

Servers = Annotated[int, typer.Option("--servers", metavar="N", min=1, max=_NUMBERS_MAX, help="Servers.")]
Shards = Annotated[int, typer.Option("--shards", metavar="N", min=1, max=_NUMBERS_MAX, help="Shards.")]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="Jobs a second to the queue `jobs`.", show_default="10")
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="NAME=RATE", help="A queue and its jobs a second; may be repeated."),
]
Batch = Annotated[int, typer.Option("--batch", metavar="N", min=1, max=1000, help="Jobs an enqueue.")]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=1, max=1000, help="Workers.")]
Concurrency = Annotated[int, typer.Option("--concurrency", metavar="N", min=1, help="Jobs that a worker runs at once.")]
HandlerTime = Annotated[
    str, typer.Option("--handler-time", metavar="DURATION", help="How long a job runs, on average.")
]
FailingPercent = Annotated[
    int,
    typer.Option(
        "--failing-percent", metavar="N", parser=options.integer_up_to(100), help="How many of 100 attempts fail."
    ),
]
SimulatedTime = Annotated[str, typer.Option("--for", metavar="DURATION", help="Simulated time: 10m, 1h.")]
Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="NAME@TIME",
        help="What goes wrong, when, for how long, and which server, shard or worker:"
        " kill-server@10m, lose-shard@20m+5m, kill-worker@1m+30s:2. May be repeated.",
    ),
]
ListFaults = Annotated[bool, typer.Option("--list-faults", help="Print the faults that there are.")]
StoreLatency = Annotated[
    str, typer.Option("--store-latency", metavar="DURATION", help="Longest ordinary call to a shard.")
]
NetworkLatency = Annotated[
    str, typer.Option("--network-latency", metavar="DURATION", help="Longest ordinary way of a message.")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", min=0, max=SEED_MAX, help="Repeats a run.", show_default="random"),
]
HistoryFile = Annotated[
    Path | None,
    typer.Option(
        "--history", metavar="FILE", help="Where to write the history if a promise was broken.", show_default=False
    ),
]


def span_of(text: str, option: str, least_ms: int = 0) -> int:
    span_ms = options.span_ms(text, option)
    assert span_ms is not None  # noqa: S101 - only None gives None
    if span_ms < least_ms:
        raise typer.BadParameter(f"{text!r} is less than {duration_text(least_ms)}", param_hint=option)
    return span_ms


def queues_of(named: list[str] | None, rate: float | None) -> list[QueueLoad]:
    from pinlater.domain.queue import QUEUE_NAME_RULE, is_queue_name
    from pinlater.simulation.scenario import QueueLoad

    if named and rate is not None:
        raise typer.BadParameter("--rate and --queue exclude each other", param_hint="--rate")
    if not named:
        return [QueueLoad(_QUEUE, _positive(_RATE if rate is None else rate, "--rate"))]
    loads = {}
    for text in named:
        name, equals, number = text.partition("=")
        try:
            load = QueueLoad(name, float(number))
        except ValueError:
            equals = ""
        if not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=RATE, such as emails=2.5", param_hint="--queue")
        if not is_queue_name(name):
            raise typer.BadParameter(f"{name!r}: {QUEUE_NAME_RULE}", param_hint="--queue")
        _positive(load.rate, "--queue")
        if name in loads:
            raise typer.BadParameter(f"{name!r} is named twice", param_hint="--queue")
        loads[name] = load
    return list(loads.values())


def _positive(rate: float, option: str) -> float:
    if not 0 < rate < float("inf"):
        raise typer.BadParameter(f"{rate:g} jobs a second: the rate must be more than 0", param_hint=option)
    return rate


def fault_of(scenario: Scenario, text: str) -> PlannedFault:
    from pinlater.simulation.scenario import check_fault, read_fault

    try:
        fault = read_fault(text)
        check_fault(scenario, fault)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--fault") from None
    return fault
