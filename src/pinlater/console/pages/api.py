"""How pages reach the endpoints of `/v1`: a call in the same process, without HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pinlater.client import AsyncClient
from pinlater.console import costs
from pinlater.console.arrival import Arrival
from pinlater.console.endpoint import ApiCall, Endpoint
from pinlater.console.endpoints.fields import Nothing, RequestShape
from pinlater.console.pages.shared_answers import SharedAnswers
from pinlater.domain.byte_budget import ByteBudget

A = TypeVar("A")
NOTHING = Nothing()


class Api:
    """Calls the functions of endpoints with the rights of `client`. `make_call`: makes an `ApiCall` with the data that all requests share.
    `answers`: those that pages share."""

    def __init__(
        self,
        client: AsyncClient,
        make_call: Callable[..., ApiCall[Any, Any]],
        budget: ByteBudget,
        answers: SharedAnswers,
        token: str = "",
    ) -> None:
        self._client = client
        self._make_call = make_call
        self._budget = budget
        self._answers = answers
        self._token = token

    def with_token(self, token: str, caller: Arrival) -> Api:
        """The same with the rights of a token; '' is not a token. `caller`: the one for which the console makes calls."""
        return Api(caller.calls_of(self._client, token), self._make_call, self._budget, self._answers, token)

    async def shared(self, read: Callable[[Api], Awaitable[A]]) -> A:
        """Returns the result of `read`, which only calls endpoints that change nothing. Browsers with the same token share it for a
        second.
        """
        answer: A = await self._answers.get((self._token, read), lambda: read(self))
        return answer

    async def ask(
        self,
        endpoint: Endpoint[Any, Any, A],
        *,
        queue: str = "",
        descriptor: str = "",
        query: RequestShape = NOTHING,
        body: RequestShape = NOTHING,
    ) -> A:
        """The answer of an endpoint, with its reservation of memory. `query` and `body` were already checked.

        Raises RequestRefused and PinLaterError.
        """
        call = self._make_call(self._client, queue=queue, descriptor=descriptor, header="", query=query, body=body)
        try:
            with costs.reserved(self._budget, endpoint, call):
                return await endpoint.act(call)
        finally:
            if endpoint.method != "GET":
                self._answers.forget()
