"""The order of the samples that one statement finds for several ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pinlater.server.storage.values import SampleRange, StoredSample


def in_order(ranges: Sequence[SampleRange], found: Iterable[StoredSample]) -> list[StoredSample]:
    """One range after the other, each of a step of its own, and each in the order of time, queue and origin."""
    by_step: dict[int, list[StoredSample]] = {wanted.step_s: [] for wanted in ranges}
    for sample in found:
        by_step[sample.step_s].append(sample)
    return [sample for samples in by_step.values() for sample in sorted(samples)]
