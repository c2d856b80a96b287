"""The console behind real proxies, with the documented configurations: at a root and below a path, with and without users, over TLS."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from pinlater.server.features.audit.trail import AuditTrail
from pinlater.wire.generated.structs import AuditRequest
from tests.console.proxies.conftest import ServedConsoles
from tests.console.proxies.person import ProxiedBrowser
from tests.console.proxies.proxy_process import KINDS, NAME, USER, Kind, command, documented, running
from tests.databases.server_process import ServerMissing

pytestmark = pytest.mark.asyncio(loop_scope="package")
# What a client sends to be taken for another one, at another place.
SPOOFED = {
    "X-Forwarded-User": "root",
    "X-Forwarded-For": "6.6.6.6",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "http",
    "X-Forwarded-Prefix": "/evil",
    "Forwarded": "for=6.6.6.6;host=evil.example;proto=http",
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    try:
        command(kind, Path("none"))
    except ServerMissing as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))
    return kind


async def audited(served: ServedConsoles) -> tuple[str, str]:
    """The caller of the newest change, and its address."""
    newest = (await served.core.service.of(AuditTrail).read(AuditRequest())).entries[0]
    return newest.who, newest.address


@pytest.mark.parametrize(("prefix", "tls"), [("/jobs", True), ("/tools/jobs", False), ("", True), ("", False)])
async def test_people_log_in_and_use_forms_links_and_the_api(
    served: ServedConsoles, kind: Kind, prefix: str, tls: bool
) -> None:
    def use(port: int) -> None:
        person = ProxiedBrowser(port, tls=tls)
        assert "Log in" in person.page(f"{prefix}/failed", 401).text
        location = person.submits_log_in(prefix, served.token)
        assert location.startswith(f"{prefix}/failed?done=")
        [cookie] = person.cookies.values()
        secure = ("__Secure-" if prefix else "__Host-") if tls else ""
        assert cookie.key == f"{secure}pinlater-session-{port}{prefix.replace('/', '.')}"
        assert (cookie["path"], cookie["secure"], cookie["httponly"]) == (prefix or "/", tls or "", True)
        seen = person.walk(f"{prefix}/")
        assert seen >= {f"{prefix}{path}" for path in ("/queues/mail", "/audit", "/v1/openapi.json")}
        assert any(path.startswith(f"{prefix}/jobs/mail:") for path in seen)
        location = person.pauses(prefix)
        assert location.startswith(f"{prefix}/queues/mail?done=")
        assert re.search("data-notice>.*mail (is|was) ", person.ask("GET", location).text)
        assert person.ask("POST", f"{prefix}/queues/mail/resume", {}, Origin="https://evil.example").status == 403
        bearer = {"Authorization": f"Bearer {served.token}", "Accept": "application/json"}
        [server] = person.json(f"{prefix}/v1/openapi.json", **bearer)["servers"]
        assert server == {"url": prefix or "/"}
        assert person.json(f"{prefix}/v1/queues", **bearer)["queues"] == [{"name": "mail"}]
        assert person.submits(f"{prefix}/", f"{prefix}/logout").startswith(f"{prefix}/login")
        assert person.ask("GET", f"{prefix}/").status == 401

    with running(kind, documented(kind, prefix, tls=tls), served.trusting) as port:
        await asyncio.to_thread(use, port)


@pytest.mark.parametrize("prefix", ["/jobs", ""])
async def test_users_of_the_proxy_are_named_and_nothing_that_a_client_sends_counts(
    served: ServedConsoles, kind: Kind, prefix: str
) -> None:
    def use(port: int) -> None:
        assert ProxiedBrowser(port).ask("GET", f"{prefix}/").status == 401
        for added in ({}, SPOOFED):
            person = ProxiedBrowser(port, user=True, added=added)
            assert f"User{USER}Tokenconsole" in "".join(person.page(f"{prefix}/").text.split())
            assert person.cookies == {}
            assert person.pauses(prefix).startswith(f"{prefix}/queues/mail?done=")
            assert person.json(f"{prefix}/v1/server", Accept="*/*")["caller"]["token_name"] == "console"
        person.walk(f"{prefix}/")

    with running(kind, documented(kind, prefix, users=True), served.with_users) as port:
        await asyncio.to_thread(use, port)
    assert await audited(served) == (f"console for {USER}", "127.0.0.1 through 127.0.0.1")


async def test_without_settings_a_proxy_with_tls_at_the_usual_port_works(served: ServedConsoles, kind: Kind) -> None:
    """The browser adds no port to `Host` then."""

    def use(port: int) -> None:
        person = ProxiedBrowser(port, host=NAME, added=SPOOFED)
        location = person.submits_log_in("", served.token)
        assert location.startswith("/failed?done=")
        person.walk("/")
        assert person.pauses("").startswith("/queues/mail?done=")
        other = ProxiedBrowser(port)
        assert f"add '{NAME}' to the setting console_names" in other.page("/queues/mail", 421).text

    with running(kind, documented(kind), served.bare) as port:
        await asyncio.to_thread(use, port)
