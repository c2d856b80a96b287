"""Settings of the demand for job slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class DemandSettings:
    """How many job slots a queue is said to want."""

    drain_target_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    """The time in which the slots that a queue is said to want work off its waiting jobs. In seconds; `5m` too."""
