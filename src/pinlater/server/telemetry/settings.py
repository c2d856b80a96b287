"""Settings of metrics and tracing."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.domain.invalid_settings import InvalidSettings

QUEUE_SERIES_MAX = 500
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "text", "json")


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """`log_format` auto: text on a terminal, else JSON. `queue_metrics_max`: more queues than that are counted together.

    `queue_series_max`: how many queues, the busiest, have series of their own in /metrics; the others are there as one, `(other)`.
    """

    log_level: str = "info"
    """`debug` (a line for each request), `info`, `warning` or `error`."""
    log_format: str = "auto"
    """`text`, `json`, or `auto`: text on a terminal, else JSON."""
    queue_metrics_max: int = 10_000
    """Most queues with metrics of their own; further ones are counted together."""
    loop_lag_interval_ms: int = 20
    """How often the timer fires that measures the event loop; how exact the metrics `loop-lag-*` are."""
    queue_series_max: int = QUEUE_SERIES_MAX
    """Most queues that /metrics shows by name, the busiest; all others are one queue there, `(other)`."""

    def __post_init__(self) -> None:
        if self.log_level not in LOG_LEVELS:
            raise InvalidSettings(f"log_level {self.log_level!r} is not one of {', '.join(LOG_LEVELS)}", "log_level")
        if self.log_format not in LOG_FORMATS:
            raise InvalidSettings(
                f"log_format {self.log_format!r} is not one of {', '.join(LOG_FORMATS)}", "log_format"
            )
