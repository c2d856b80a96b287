"""Bounds of the decoder. A length in the bytes beyond them is refused before any memory is reserved for it."""

from __future__ import annotations

from typing import NamedTuple

FRAME_BYTES_MAX = 16 * 1024 * 1024  # unless it is configured otherwise
# The same for answers. With their defaults, libraries of Apache Thrift accept frames of up to 16,384,000 bytes.
ANSWER_BYTES_MAX = 16_000_000


class WireLimits(NamedTuple):
    """The bounds of one frame. The service's own bounds (jobs, descriptors, bodies) are narrower and give clearer errors.

    A decoded frame takes up to about twenty times its own bytes, at worst: many tiny entries of a map.
    """

    max_frame_bytes: int = FRAME_BYTES_MAX
    max_container_items: int = 100_000


I32_MAX = 2**31 - 1


def fit_i32(number: int) -> int:
    """Returns a number, limited to the range of an i32."""
    return min(number, I32_MAX)
