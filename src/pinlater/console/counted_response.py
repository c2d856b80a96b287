"""A response whose bytes count in the budget until the client has read them."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pinlater.domain.byte_budget import ByteBudget


class CountedResponse(Response):
    """`budget`: of the console."""

    def __init__(self, budget: ByteBudget, data: bytes, status: int, media_type: str | None) -> None:
        super().__init__(data, status, media_type=media_type)
        self._budget = budget

    @property
    def fits(self) -> bool:
        """Whether there is memory for it until it is read."""
        self._budget.hold_answer(len(self.body))
        fits = not self._budget.exhausted
        self._budget.hold_answer(-len(self.body))
        return fits

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        self._budget.hold_answer(len(self.body))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            # uvicorn does not wait here for the client, but before the next message.
            await send({"type": "http.response.body"})
        finally:
            self._budget.hold_answer(-len(self.body))
