"""How pages reach the endpoints of `/v1`: a call in the same process, without HTTP."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pinlater.client import AsyncClient
from pinlater.console import costs
from pinlater.console.endpoint import ApiCall
from pinlater.console.routes import ENDPOINTS
from pinlater.console.shapes.fields import Nothing, RequestShape
from pinlater.domain.byte_budget import ByteBudget

A = TypeVar("A")
NOTHING = Nothing()
_BY_FUNCTION = {endpoint.act: endpoint for endpoint in ENDPOINTS}


class Api:
    """Calls the functions of endpoints with the rights of `client`. `make_call`: an `ApiCall` with what all requests share."""

    def __init__(self, client: AsyncClient, make_call: Callable[..., ApiCall[Any, Any]], budget: ByteBudget) -> None:
        self._client = client
        self._make_call = make_call
        self._budget = budget

    def with_token(self, token: str) -> Api:
        """The same with the rights of a token; '' is no token."""
        return Api(self._client.with_token(token), self._make_call, self._budget)

    async def ask(
        self,
        act: Callable[[ApiCall[Any, Any]], Coroutine[Any, Any, A]],
        *,
        queue: str = "",
        descriptor: str = "",
        query: RequestShape = NOTHING,
        body: RequestShape = NOTHING,
    ) -> A:
        """The answer of an endpoint, with its reservation of memory. `query` and `body` were checked already.

        Raises RequestRefused and PinLaterError.
        """
        call = self._make_call(self._client, queue=queue, descriptor=descriptor, header="", query=query, body=body)
        with costs.reserved(self._budget, _BY_FUNCTION[act], call):
            return await act(call)
