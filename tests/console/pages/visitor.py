"""Reads the pages of the application without sockets, as a browser without JavaScript does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

from tests.console.caller import Answer, Caller

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_RUNS_CODE = re.compile(r"on\w+|style|srcdoc")


class PageReader(HTMLParser):
    """A page as text, its forms' targets, and whatever in it a browser would run that is not a file of the console."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.targets: list[str] = []
        self.links: list[str] = []
        self.inputs: dict[str, str] = {}
        self.tags: set[str] = set()
        self.dangers: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        if tag == "form" and given.get("method") == "post":
            self.targets.append(given["action"])
        if tag == "input":
            self.inputs[given.get("name", "")] = given.get("value", "")
        if tag == "a":
            self.links.append(given["href"])
        if tag in ("iframe", "object", "embed", "style", "base", "img") or (tag == "script" and "src" not in given):
            self.dangers.append(tag)
        for name, value in given.items():
            if _RUNS_CODE.fullmatch(name) or (
                name in ("href", "src", "action") and not re.match(r"(?:\.\.?(?=/)|/\.\.)*[/#](?!/)|$", value)
            ):
                self.dangers.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.text += data


class PageVisitor(Caller):
    """A person with a browser. Each page is checked: its policy, its type, and that it holds nothing to run."""

    def _checked(self, method: str, path: str, answer: Answer) -> Answer:
        if path.startswith("/v1/") or method == "POST" or "text/html" not in answer.headers.get("content-type", ""):
            return answer
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert PageReader(answer.body.decode()).dangers == []
        return answer

    async def page(self, path: str, status: int = 200) -> PageReader:
        """A page."""
        answer = await self.get(path, accept="text/html")
        assert answer.status == status, answer
        return PageReader(answer.body.decode())

    async def submit(self, path: str, fields: Mapping[str, Any] = {}, **headers: str) -> Answer:
        """The answer to a form of our own page."""
        own = {"origin": "http://127.0.0.1", "content_type": "application/x-www-form-urlencoded", "accept": "text/html"}
        return await self.send("POST", path, urlencode(fields).encode(), **{**own, **headers})

    async def does(self, path: str, **fields: Any) -> str:
        """Submits a form that succeeds, and follows it: the message of the page."""
        answer = await self.submit(path, fields)
        assert answer.status == 303, answer
        page = await self.get(answer.headers["location"], accept="text/html")
        assert page.status == 200, page
        found = re.search(r"data-notice>(.*?)</p>", page.body.decode(), re.DOTALL)
        assert found is not None, page
        return PageReader(found[1]).text
