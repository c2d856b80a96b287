"""A server with its console, tokens, masks and trusted proxies, from the settings to an answer over a socket."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cli.conftest import COMMAND, Pinlater
from tests.cli.test_console_beside_server import BESIDE
from tests.console.test_over_sockets import ListeningConsole, _port_in

BODY = b"s3cret"


@contextlib.contextmanager
def serving(tmp_path: Path, offline: Pinlater, proxy: str) -> Iterator[tuple[ListeningConsole, str]]:
    """A server that masks the queue `mail`, whose console trusts `proxy`; and an admin's token."""
    tokens, users = tmp_path / "tokens.json", tmp_path / "users.token"
    create = ("token", "create", "--tokens", str(tokens), "--role")
    users.write_text(offline.ok(*create, "operate", "--speaks-for-others", "console").out)
    admin = offline.ok(*create, "admin", "root").out.strip()
    settings = [f"console_trusted_proxies={proxy}", f"console_user_token_file={users}", "access.masked_queues=mail*"]
    command = [*COMMAND, *BESIDE, "--tokens", str(tokens), *(part for one in settings for part in ("--set", one))]
    log = tmp_path / "log"
    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr, text=True) as process:
        try:
            site = ListeningConsole(process, _port_in(log, process))
            yield site, admin
            site.stop()
        finally:
            process.kill()


def ask(
    site: ListeningConsole, method: str, path: str, *headers: tuple[str, str], body: bytes = b""
) -> tuple[int, bytes]:
    """Status and body of an answer. A header may come twice."""
    connection = site.connection()
    connection.putrequest(method, path)
    for name, value in (*headers, ("Content-Length", str(len(body)))):
        connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    found = response.status, response.read()
    connection.close()
    return found


def test_a_user_of_a_trusted_proxy_acts_by_name_and_sees_masked_bodies(tmp_path: Path, offline: Pinlater) -> None:
    with serving(tmp_path, offline, "127.0.0.1") as (site, admin):
        root, ada = ("Authorization", f"Bearer {admin}"), ("X-Forwarded-User", "ada")
        ask(site, "POST", "/v1/queues", root, ("Content-Type", "application/json"), body=b'{"name": "mail"}')
        _, stored = ask(site, "POST", "/v1/queues/mail/jobs", root, ("Content-Type", "text/plain"), body=BODY)
        job = f"/v1/jobs/{json.loads(stored)['descriptor']}?bodies=true"
        shown, whole = json.loads(ask(site, "GET", job, ada)[1]), json.loads(ask(site, "GET", job, root)[1])
        assert (shown["body"], shown["body_masked"], whole["body"]) == ("", True, BODY.decode())
        assert ask(site, "POST", "/v1/queues/mail/pause", ada)[0] == 403
        assert ask(site, "POST", "/v1/queues/mail/pause", ada, ("Origin", site.url))[0] == 200
        [paused, *_] = json.loads(ask(site, "GET", "/v1/audit?operation=pauseQueue", root)[1])["entries"]
        assert paused["who"] == "console for ada"
        assert ask(site, "GET", "/v1/queues", ada, ("x-forwarded-user", "eve"))[0] == 400
        assert ask(site, "GET", "/v1/queues")[0] == 401


def test_no_header_makes_an_address_a_trusted_proxy(tmp_path: Path, offline: Pinlater) -> None:
    claimed = [(name, "10.9.8.7") for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "Client-IP")]
    with serving(tmp_path, offline, "10.9.8.7") as (site, _):
        assert ask(site, "GET", "/v1/queues", ("X-Forwarded-User", "ada"), *claimed)[0] == 401
