"""The generated structs without their types, for tests that send wrong values: `from tests import structs as types`."""

from __future__ import annotations

from typing import Any

from pinlater.wire.generated import structs


class PinLaterException(Exception):
    """The declared exception, which a fake server raises. Encoded as the struct with these fields."""

    def __init__(
        self,
        error_code: int,
        message: str,
        detail: str | None = None,
        retryable: bool | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message
        self.detail = detail
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms


def __getattr__(name: str) -> Any:
    """Returns what the generated module has under this name."""
    return getattr(structs, name)
