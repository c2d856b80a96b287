"""The page of metrics lists every metric, with the code's own words, and none that is gone.

The build makes the tables of queues and methods; these tests concern the others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pinlater.server.storage.values import FIGURES
from pinlater.server.telemetry import catalogue
from scripts.reference.regions import rewritten

ROOT = Path(__file__).parents[2]
PAGE = rewritten((ROOT / "docs" / "reference" / "metrics.md").read_text())
OTHERS = (catalogue.METHOD_REQUESTS, catalogue.METHOD_ERRORS, catalogue.METHOD_MSEC)
STORED = (catalogue.QUEUE_JOBS, catalogue.QUEUE_BEHIND_KEY, catalogue.QUEUE_OLDEST_DUE)


def row_with(*cells: str) -> str:
    rows = [row for row in PAGE.splitlines() if row.startswith("|") and all(cell in row for cell in cells)]
    assert len(rows) == 1, f"{cells}: {rows}"
    return rows[0]


def test_every_metric_of_stored_jobs_is_listed() -> None:
    for metric in STORED:
        row_with(f"`{metric.prometheus}`", metric.help)


def names_given_to_metrics() -> Iterator[str]:
    """What the code hands to `Metrics.count` and `Metrics.gauge`, as far as it stands in the call itself."""
    for path in (ROOT / "src" / "pinlater").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("count", "gauge")
            ):
                owner = ast.unparse(node.func.value)
                if owner.endswith("metrics") and node.args:
                    yield from texts_of(node.args[0])


def texts_of(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield str(next(part.value for part in node.values if isinstance(part, ast.Constant)))  # its fixed beginning
    elif isinstance(node, ast.IfExp):
        yield from texts_of(node.body)
        yield from texts_of(node.orelse)


def test_every_event_and_gauge_in_the_code_is_listed() -> None:
    names = set(names_given_to_metrics())
    assert {"http-connections", "http_connections_refused"} <= names
    missing = {name for name in names if f"`{name}" not in PAGE}
    assert not missing, f"docs/reference/metrics.md lacks {sorted(missing)}"


def test_nothing_is_listed_that_the_code_does_not_have() -> None:
    known = {f"{counter.prometheus}_total" for counter in catalogue.QUEUE_COUNTERS}
    known |= {metric.prometheus for metric in catalogue.QUEUE_HISTOGRAMS}
    known |= {metric.prometheus for metric in (*OTHERS, *STORED)}
    known |= {f"{metric.prometheus}_total" for metric in (*OTHERS, catalogue.EVENTS)}
    known |= {f"{catalogue.METHOD_MSEC.prometheus}_bucket", *(f"pinlater_store_{name}" for name in FIGURES)}
    source = "".join(path.read_text() for path in (ROOT / "src" / "pinlater").rglob("*.py"))
    unknown = {name for name in re.findall(r"\bpinlater_\w+", PAGE) if name not in known and f'"{name}"' not in source}
    assert not unknown


def test_names_follow_prometheus_rules() -> None:
    of_queues = [metric.prometheus for metric in catalogue.QUEUE_COUNTERS]
    of_queues += [metric.prometheus for metric in catalogue.QUEUE_HISTOGRAMS]
    for name in (*of_queues, *(metric.prometheus for metric in (*OTHERS, *STORED))):
        assert re.fullmatch(r"pinlater_[a-z][a-z_]*[a-z]", name)
        assert "msec" not in name
        assert "_ms" not in name
