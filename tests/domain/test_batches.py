"""Jobs in requests that every server accepts."""

from __future__ import annotations

from pinlater.domain.batches import batches


def test_a_request_stays_within_its_jobs_and_bytes() -> None:
    def numbers(*sizes: int) -> list[int]:
        return [len(batch) for batch in batches(sizes, lambda size: size)]

    large = 3_000_000
    assert numbers(large, large, 0, 0) == [1, 3]
    assert numbers(*[0] * 1_001) == [500, 500, 1]
    assert numbers(0, 2 * large, 0) == [1, 1, 1]
    assert numbers() == []
    assert list(batches([1, 2, 3], lambda size: size, jobs_max=2, bytes_max=2)) == [[1], [2], [3]]
