"""Calls an ASGI application without sockets, and checks each answer against the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from starlette.types import ASGIApp, Message

from pinlater.console.openapi import document
from pinlater.console.problems import MEDIA_TYPE
from pinlater.console.routes import ENDPOINTS


class Answer(NamedTuple):
    """What a caller got. HeaderParameter names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """An HTTP caller of the application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.called: set[str] = set()
        self.unchecked: list[Answer] = []

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send("GET", path, **headers)

    async def post(self, path: str, body: object = None, **headers: str) -> Answer:
        """A request with a JSON body."""
        return await self.send("POST", path, b"" if body is None else json.dumps(body).encode(), **headers)

    async def ok(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """The JSON of an answer without an error; None without one."""
        answer = await self.send(method, path, b"" if body is None else json.dumps(body).encode(), **headers)
        assert answer.status < 300, answer
        return answer.json if answer.body else None

    async def refused(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """The problem that is the answer."""
        answer = await self.send(method, path, b"" if body is None else json.dumps(body).encode(), **headers)
        assert answer.status >= 400, answer
        assert answer.json["status"] == answer.status
        return answer.json

    async def send(self, method: str, path: str, *pieces: bytes, **headers: str) -> Answer:
        """One request; `pieces` of its body come one by one."""
        return await self.interrupted(method, path, *pieces, headers=headers)

    async def interrupted(
        self,
        method: str,
        path: str,
        *pieces: bytes,
        headers: Mapping[str, str] = {},
        gone: asyncio.Event | None = None,
        stalls: bool = False,
    ) -> Answer:
        """One request. The caller disconnects when `gone` is set. `stalls`: the end of its body does not come."""
        sent: list[Message] = []
        waiting = list(pieces) or [b""]

        async def receive() -> Message:
            if waiting:
                piece = waiting.pop(0)
                return {"type": "http.request", "body": piece, "more_body": stalls or bool(waiting)}
            await (gone or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        try:
            await self.app(_scope(method, path, {"host": "127.0.0.1", **headers}), receive, send)
        except RuntimeError:
            self.unchecked.append(_answer(sent))
            raise
        return self._checked(method, path, _answer(sent))

    def _checked(self, method: str, path: str, answer: Answer) -> Answer:
        """The answer, if it is what the document says."""
        path = urlsplit(path).path
        found = [one for one in ENDPOINTS if one.method == method and matches(one.path, path)]
        if found and answer.status < 300:
            self.called.add(found[0].name)
            assert answer.status == found[0].status
        kind = answer.headers.get("content-type", "")
        content = document()["paths"].get(found[0].path if found else "", {}).get(method.lower(), {})
        described = content.get("responses", {}).get(str(answer.status) if answer.status < 300 else "default", {})
        schema = described.get("content", {}).get(kind, {}).get("schema")
        if answer.status >= 400 and answer.status != 499:
            assert kind == MEDIA_TYPE
            schema = {"$ref": "#/components/schemas/Problem"}
        if schema is not None and answer.body and kind.endswith("json"):
            Draft202012Validator({**schema, "components": document()["components"]}).validate(answer.json)
        return answer


def matches(pattern: str, path: str) -> bool:
    """Whether a path is one of an endpoint's."""
    return re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), path) is not None


def _scope(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    url = urlsplit(path)
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(url.path),
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "root_path": "",
        "headers": [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 9998),
    }


def _answer(sent: list[Message]) -> Answer:
    headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], headers, body)
