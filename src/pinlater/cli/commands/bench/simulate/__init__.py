"""`pinlater bench simulate`: a cluster on a simulated clock, network and store, with the operator's settings, load and faults."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from pinlater.cli import exits, notes, options, output
from pinlater.cli.commands.bench.simulate import printing
from pinlater.cli.commands.bench.simulate.arguments import (
    SEED_MAX,
    Batch,
    Concurrency,
    FailingPercent,
    Faults,
    HandlerTime,
    HistoryFile,
    ListFaults,
    NetworkLatency,
    Queues,
    Rate,
    Seed,
    Servers,
    Shards,
    SimulatedTime,
    StoreLatency,
    Workers,
    fault_of,
    queues_of,
    span_of,
)
from pinlater.cli.commands.bench.simulate.progress import shown_progress
from pinlater.cli.server_settings import ConfigFile, MoreSettings, load_settings
from pinlater.domain.durations import duration_text

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.simulation.scenario import Scenario


def simulate(
    config: ConfigFile = None,
    set_: MoreSettings = None,
    servers: Servers = 3,
    shards: Shards = 3,
    rate: Rate = None,
    queue: Queues = None,
    batch: Batch = 1,
    workers: Workers = 10,
    concurrency: Concurrency = 16,
    handler_time: HandlerTime = "200ms",
    failing_percent: FailingPercent = 0,
    duration: SimulatedTime = "10m",
    fault: Faults = None,
    list_faults: ListFaults = False,
    store_latency: StoreLatency = "2ms",
    network_latency: NetworkLatency = "1ms",
    seed: Seed = None,
    history: HistoryFile = None,
    json: options.Json = False,
) -> None:
    """Simulate a cluster with faults. Prints waits, backlog and fail-over times. Exit code 1 if a promise was broken.

    Example: pinlater bench simulate --config pinlater.toml --rate 15 --for 1h --fault kill-server@10m --fault lose-shard@20m+5m
    """
    from pinlater.simulation.scenario import Scenario

    if list_faults:
        printing.print_faults(json)
        return
    loaded = load_settings(config, set_, {}, driver_needed=False, tokens_needed=False)
    chosen_seed = secrets.randbelow(SEED_MAX) if seed is None else seed
    scenario = Scenario(
        settings=loaded.settings,
        seed=chosen_seed,
        servers=servers,
        shards=shards,
        queues=queues_of(queue, rate),
        batch=batch,
        workers=workers,
        concurrency=concurrency,
        handler_ms=span_of(handler_time, "--handler-time"),
        failing=failing_percent / 100,
        lasts_ms=span_of(duration, "--for", least_ms=1_000),
        store_latency_ms=span_of(store_latency, "--store-latency"),
        network_latency_ms=span_of(network_latency, "--network-latency"),
        faults=(),
    )
    scenario = scenario._replace(faults=[fault_of(scenario, text) for text in fault or ()])
    _warn_of_settings(scenario.settings)
    _warn_of_overload(scenario)
    _run(scenario, history or Path(f"pinlater-simulation-{chosen_seed}.txt"), json)


def _run(scenario: Scenario, history: Path, as_json: bool) -> None:
    from pinlater.simulation.run import ClusterNotReady
    from pinlater.simulation.run import simulate as simulate_scenario

    try:
        with shown_progress(scenario.lasts_ms / 1000) as progress:
            report = simulate_scenario(scenario, history, progress)
    except ClusterNotReady as error:
        exits.fail(f"{error}; look at the time limits in the settings", exits.REFUSED)
    if as_json:
        output.print_json(printing.as_json(report))
    else:
        printing.print_report(report)
    if report.broken:
        exits.fail(
            f"{len(report.broken)} promises were broken; the history is in {history}, and --seed {report.seed} with the"
            " same options repeats it",
            exits.REFUSED,
        )


def _warn_of_settings(settings: Settings) -> None:
    """Prints notes about what the simulated servers leave out."""
    files = [name for name in ("queue_limits_file", "server_set_file") if getattr(settings, name) is not None]
    for name in files:
        notes.note(f"{name} is not simulated")


def _warn_of_overload(scenario: Scenario) -> None:
    slots = scenario.workers * scenario.concurrency
    needed = scenario.rate * scenario.handler_ms / 1000
    if needed >= slots:
        notes.note(
            f"{scenario.rate:g} jobs a second of {duration_text(scenario.handler_ms)} need more than the {slots} slots"
            " of the workers, so the backlog grows"
        )
