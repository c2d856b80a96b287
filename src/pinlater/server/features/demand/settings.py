"""Settings of the demand for job slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class DemandSettings:
    """Sets how many job slots servers report for a queue."""

    drain_target_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    """Servers report as many slots as work off the waiting jobs within this time. In seconds; `5m` too."""
