"""Results as values and as a file: machine facts, every run, medians; read again for a comparison."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scripts.optimized_python import HINT, is_optimized

FORMAT = 1
RESULTS_DIR = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Goal:
    """A least and a wished-for value of `measure`, one of the row's figures. `at_most`: smaller is better."""

    measure: str
    must: float
    aim: float
    unit: str = ""
    at_most: bool = False

    def verdict(self, value: float) -> str:
        """`aim`, `must` or `missed`."""
        if self.at_most:
            return "aim" if value <= self.aim else "must" if value <= self.must else "missed"
        return "aim" if value >= self.aim else "must" if value >= self.must else "missed"


@dataclass(slots=True)
class RowResult:
    """One line of the table. `figures` are medians over `runs`; `goals` are judged by them."""

    name: str
    title: str
    goals: list[Goal] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    references: dict[str, float] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: str = ""


@dataclass(slots=True)
class Results:
    """A whole run of the benchmark."""

    machine: dict[str, Any]
    options: dict[str, Any]
    rows: list[RowResult] = field(default_factory=list)
    format: int = FORMAT

    def write(self, path: Path) -> None:
        """As JSON; makes the folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def read_results(path: Path) -> Results:
    """The results in a file; raises `ValueError` for another format."""
    raw = json.loads(path.read_text())
    if raw.get("format") != FORMAT:
        raise ValueError(f"{path} has format {raw.get('format')!r}, this program reads {FORMAT}")
    rows = [RowResult(**{**row, "goals": [Goal(**goal) for goal in row["goals"]]}) for row in raw["rows"]]
    # Older files know but one store.
    machine = {"store": "sqlite", "database": f"SQLite {raw['machine'].get('sqlite')}", **raw["machine"]}
    return Results(machine, raw["options"], rows)


def median_of(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the runs that have it."""
    names = {name: None for run in runs for name in run}
    return {name: statistics.median(run[name] for run in runs if name in run) for name in names}


def machine_facts(folder: Path, store: Mapping[str, str]) -> dict[str, Any]:
    """What one must know to compare figures: cores, model, memory, kernel, versions, the file system of `folder`, facts of the store."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _first_value(Path("/proc/cpuinfo"), "model name"),
        "memory_kb": _first_value(Path("/proc/meminfo"), "MemTotal"),
        "kernel": platform.release(),
        "python": sys.version.split()[0] + ("" if is_optimized() else f" ({HINT})"),
        **store,
        "file_system": _file_system(folder),
        "load_before": os.getloadavg()[0],
        "commit": _commit(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _first_value(path: Path, key: str) -> str:
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "unknown")


def _file_system(folder: Path) -> str:
    """Type of the mount that holds `folder`: the longest mount point above it."""
    best, kind = "", "unknown"
    mounts = Path("/proc/mounts")
    for line in mounts.read_text().splitlines() if mounts.exists() else []:
        _, point, this_kind, *_ = line.split()
        if len(point) > len(best) and folder.resolve().is_relative_to(point):
            best, kind = point, this_kind
    return kind


def _commit() -> str:
    """The commit of the tree this runs from, or unknown."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
