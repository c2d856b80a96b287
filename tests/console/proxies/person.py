"""A person with a browser behind a proxy: cookies, links and forms as the pages have them."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
from collections.abc import Mapping
from html.parser import HTMLParser
from http.cookies import Morsel, SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

from tests.console.proxies.proxy_process import NAME, PASSWORD, USER


class ProxiedAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


class LinkedPage(HTMLParser):
    """What a page leads to: `links` of all kinds, and its forms with their hidden fields."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: dict[str, dict[str, str]] = {}
        self.text = ""
        self._form: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("href", "src") if name in given]
        if tag == "form" and given.get("method") != "dialog":
            self._form = self.forms.setdefault(given["action"], {}) if given.get("method") == "post" else {}
            self.links += [given["action"]] if given.get("method") != "post" else []
        if tag == "input" and given.get("type") == "hidden":
            self._form[given["name"]] = given["value"]

    def handle_data(self, data: str) -> None:
        self.text += data


class ProxiedBrowser:
    """`port`: of the proxy. `authority`: the host as the address field shows it. `added`: to the headers of each request."""

    def __init__(
        self, port: int, *, host: str = "", tls: bool = True, user: bool = False, added: Mapping[str, str] = {}
    ) -> None:
        self._port = port
        self._tls = tls
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE  # the tests are about headers
        self.host = host or f"{NAME}:{port}"
        self.added = dict(added)
        if user:
            self.added["Authorization"] = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self.cookies: dict[str, Morsel[str]] = {}

    def ask(self, method: str, path: str, fields: Mapping[str, str] | None = None, **headers: str) -> ProxiedAnswer:
        """One request. A form has the `Origin` of the page."""
        sent = {"Host": self.host, "Accept": "text/html", **self.added}
        cookies = "; ".join(
            f"{one.key}={one.value}" for one in self.cookies.values() if f"{path}/".startswith(one["path"].rstrip("/") + "/")
        )  # fmt: skip
        sent |= {"Cookie": cookies} if cookies else {}
        body = None if fields is None else urlencode(fields)
        if body is not None:
            sent |= {
                "Origin": f"{'https' if self._tls else 'http'}://{self.host}",
                "Content-Type": "application/x-www-form-urlencoded",
            }
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        if self._tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=30, context=self._context)
        try:
            connection.request(method, path, body, {**sent, **headers})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for line in answer.headers.get_all("Set-Cookie") or []:
            self.cookies.update(SimpleCookie(line))
        return ProxiedAnswer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, text)

    def page(self, path: str, status: int = 200) -> LinkedPage:
        answer = self.ask("GET", path)
        assert answer.status == status, (path, answer)
        return LinkedPage(answer.text)

    def submits(self, path: str, action: str, **fields: str) -> str:
        """Submits a form of a page: where the browser is led."""
        answer = self.ask("POST", action, {**self.page(path).forms[action], **fields})
        assert answer.status == 303, answer
        return answer.headers["location"]

    def pauses(self, prefix: str) -> str:
        """Pauses the queue, or resumes it if it is paused, on its page: where the browser is led."""
        path = f"{prefix}/queues/mail"
        [action] = self.page(path).forms.keys() & {f"{path}/pause", f"{path}/resume"}
        return self.submits(path, action)

    def submits_log_in(self, prefix: str, token: str) -> str:
        """Asks for a page and logs in: the path of the page that follows."""
        form = self.page(f"{prefix}/failed", 401).forms[f"{prefix}/login"]
        answer = self.ask("POST", f"{prefix}/login", {**form, "token": token})
        assert answer.status == 303, answer
        return answer.headers["location"]

    def json(self, path: str, **headers: str) -> Any:
        answer = self.ask("GET", path, None, **headers)
        assert answer.status == 200, answer
        return json.loads(answer.text)

    def walk(self, start: str) -> set[str]:
        """Follows each link of each page, a queue's and a job's too; the paths that it has seen, all without an error."""
        seen, waiting = set[str](), [start]
        while waiting:
            path = urlsplit(waiting.pop()).path
            if path in seen:
                continue
            seen.add(path)
            answer = self.ask("GET", path)
            assert answer.status in (200, 303), (path, answer)
            assert "location" not in answer.headers or answer.headers["location"].startswith(start), answer
            if "text/html" in answer.headers.get("content-type", ""):
                found = LinkedPage(answer.text)
                assert all(action.startswith(start) for action in found.forms), found.forms
                waiting += [urljoin(path, link) for link in found.links if not re.match(r"#|https?:", link)]
        return seen
