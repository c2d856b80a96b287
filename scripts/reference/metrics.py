"""Tables of the metrics in the catalogue of the server."""

from __future__ import annotations

import re
from collections.abc import Callable

from pinlater.server.storage.values import FIGURES
from pinlater.server.telemetry.catalogue import (
    METHOD_ERRORS,
    METHOD_MSEC,
    METHOD_REQUESTS,
    QUEUE_COUNTERS,
    QUEUE_HISTOGRAMS,
)


def queue_counters() -> str:
    rows = [
        f"| `<queue>_{counter.attribute}` | `{counter.prometheus}_total` | {counter.help} |"
        for counter in QUEUE_COUNTERS
    ]
    return "\n".join(["| `/stats.txt` | `/metrics` | what is counted |", "|---|---|---|", *rows])


def queue_distributions() -> str:
    rows = []
    for each in QUEUE_HISTOGRAMS:
        unit, base = ("ms", "s") if each.ostrich.endswith("_ms") else ("bytes", "bytes")
        rows.append(f"| `{_shown(each.ostrich)}` | {unit} | `{each.prometheus}` | {base} | {each.help} |")
    head = "| `/stats.txt` | unit | `/metrics` (histogram) | unit | what is measured |"
    return "\n".join([head, "|---|---|---|---|---|", *rows])


def methods() -> str:
    rows = [
        f"| `{_shown(each.ostrich)}` | requests | `{each.prometheus}_total` | requests | {each.help} |"
        for each in (METHOD_REQUESTS, METHOD_ERRORS)
    ]
    time = METHOD_MSEC
    rows.append(f"| `{_shown(time.ostrich)}` | ms | `{time.prometheus}` (histogram) | s | {time.help} |")
    return "\n".join(["| `/stats.txt` | unit | `/metrics` | unit | what |", "|---|---|---|---|---|", *rows])


def figures() -> str:
    rows = [
        f"| `store-{name.replace('_', '-')}-<shard>` | `pinlater_store_{name}` | {meaning} |"
        for name, meaning in FIGURES.items()
    ]
    return "\n".join(["| `/stats.txt` | `/metrics` | what |", "|---|---|---|", *rows])


def _shown(ostrich: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: "<CODE>" if match[1] == "code" else f"<{match[1]}>", ostrich)


TABLES: dict[str, Callable[[], str]] = {
    "queue-counters": queue_counters,
    "queue-distributions": queue_distributions,
    "methods": methods,
    "figures": figures,
}
