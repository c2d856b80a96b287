"""The page of metrics lists every metric, with its unit and the code's own words, and none that is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pinlater.telemetry import catalogue

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
OTHERS = (catalogue.METHOD_REQUESTS, catalogue.METHOD_ERRORS, catalogue.METHOD_MSEC, catalogue.EVENTS)
STORED = (catalogue.QUEUE_JOBS, catalogue.QUEUE_OLDEST_DUE)


def shown(ostrich: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: "<CODE>" if match[1] == "code" else f"<{match[1]}>", ostrich)


def row_with(*cells: str) -> str:
    rows = [row for row in PAGE.splitlines() if row.startswith("|") and all(cell in row for cell in cells)]
    assert len(rows) == 1, f"{cells}: {rows}"
    return rows[0]


@pytest.mark.parametrize("counter", catalogue.QUEUE_COUNTERS, ids=lambda counter: counter.attribute)
def test_every_counter_is_listed(counter: catalogue.QueueCounter) -> None:
    row_with(f"`<queue>_{counter.attribute}`", f"`{counter.prometheus}_total`", counter.help)


@pytest.mark.parametrize("histogram", catalogue.QUEUE_HISTOGRAMS, ids=lambda histogram: histogram.attribute)
def test_every_distribution_is_listed_with_its_units(histogram: catalogue.QueueHistogram) -> None:
    row = row_with(f"`{shown(histogram.ostrich)}`", f"`{histogram.prometheus}`", histogram.help)
    assert "| ms | " in row or "| bytes | " in row


def test_every_other_metric_is_listed() -> None:
    for metric in OTHERS:
        row_with(f"`{shown(metric.ostrich)}`", f"`{metric.prometheus}", metric.help)
    for metric in STORED:
        row_with(f"`{metric.prometheus}`", metric.help)


def test_nothing_is_listed_that_the_code_does_not_have() -> None:
    known = {f"{counter.prometheus}_total" for counter in catalogue.QUEUE_COUNTERS}
    known |= {metric.prometheus for metric in (*catalogue.QUEUE_HISTOGRAMS, *OTHERS, *STORED)}
    known |= {f"{metric.prometheus}_total" for metric in OTHERS}
    known |= {"pinlater_http_connections", "pinlater_waiting_dequeues", "pinlater_request_duration_seconds_bucket"}
    assert set(re.findall(r"\bpinlater_\w+", PAGE)) <= known


def test_names_follow_prometheus_rules() -> None:
    for name in (
        entry.prometheus for entry in (*catalogue.QUEUE_COUNTERS, *catalogue.QUEUE_HISTOGRAMS, *OTHERS, *STORED)
    ):
        assert re.fullmatch(r"pinlater_[a-z][a-z_]*[a-z]", name)
        assert "msec" not in name
        assert "_ms" not in name
