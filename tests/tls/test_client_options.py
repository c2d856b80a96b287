"""How a client, a worker and the commands are told of TLS."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from pinlater import Worker
from pinlater.cli.main import main
from pinlater.client import AsyncClient, Client, Tls
from pinlater.client.errors import ServerUnreachable
from pinlater.tls.settings import TlsSettings
from tests.databases.proxy import in_thread
from tests.tls.certificates import Authority
from tests.tls.conftest import QUEUE, Start, TlsServer

VARIABLES = (
    "PINLATER_TLS",
    "PINLATER_TLS_CA_FILE",
    "PINLATER_TLS_SERVER_NAME",
    "PINLATER_TLS_CLIENT_CERTIFICATE_FILE",
    "PINLATER_TLS_CLIENT_KEY_FILE",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without any of the variables; what a test or a command sets is gone after the test."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


async def test_the_environment_turns_tls_on(
    server: TlsServer, authority: Authority, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("PINLATER_TLS_CA_FILE", str(authority.file))
    async with AsyncClient(server.address) as client:
        assert await client.queue_names() == [QUEUE]
    with Client(server.address) as sync:
        assert await asyncio.to_thread(sync.queue_names) == [QUEUE]


async def test_without_anything_there_is_no_tls(start: Start) -> None:
    plain = await start(None)
    async with AsyncClient(plain.address, retries=0) as client:
        assert await client.queue_names() == [QUEUE]


@pytest.mark.parametrize(("said", "wanted"), [("1", True), ("true", True), ("ON", True), ("0", False), ("off", False)])
async def test_a_variable_says_yes_or_no(
    start: Start, tls: TlsSettings, environment: pytest.MonkeyPatch, authority: Authority, said: str, wanted: bool
) -> None:
    server = await start(tls if wanted else None)
    environment.setenv("PINLATER_TLS", said)
    environment.setenv("PINLATER_TLS_CA_FILE", str(authority.file))
    async with AsyncClient(server.address, retries=0) as client:
        assert await client.queue_names() == [QUEUE]


def test_a_variable_that_says_neither_is_an_error(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PINLATER_TLS", "perhaps")
    with pytest.raises(ValueError, match="PINLATER_TLS is 'perhaps', which is neither 1 nor 0"):
        AsyncClient("localhost")


async def test_an_argument_overrides_the_environment(
    start: Start, tls: TlsSettings, environment: pytest.MonkeyPatch
) -> None:
    plain, secure = await start(None), await start(tls)
    environment.setenv("PINLATER_TLS", "1")
    async with AsyncClient(plain.address, tls=False, retries=0) as client:
        assert await client.queue_names() == [QUEUE]
    environment.setenv("PINLATER_TLS", "0")
    async with AsyncClient(secure.address, tls=True, retries=0, wait_for_servers=False) as client:
        with pytest.raises(ServerUnreachable, match="from an authority that this client does not know"):
            await client.queue_names()


@pytest.mark.parametrize("given", ["yes", 1, ssl.create_default_context()], ids=["text", "number", "context"])
def test_what_is_no_option_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match=r"tls must be True, False or pinlater\.Tls"):
        AsyncClient("localhost", tls=given)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda folder, authority: Tls(ca_file=folder / "none.pem"),
            "holds no certificates: No such file or directory",
        ),
        (lambda folder, authority: Tls(key_file=authority.file), "key_file needs certificate_file"),
        (
            lambda folder, authority: Tls(
                certificate_file=authority.sign("a").certificate, key_file=authority.sign("b").key
            ),
            "can't be used: the key does not belong to the certificate",
        ),
        (
            lambda folder, authority: Tls(certificate_file=folder / "none.pem"),
            "can't be used: No such file or directory",
        ),
    ],
    ids=["no authorities", "only a key", "another key", "no certificate"],
)
def test_files_that_are_no_good_are_named_at_once(authority: Authority, tmp_path: Path, make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AsyncClient("localhost", tls=make(tmp_path, authority))


async def test_a_worker_runs_jobs_over_tls_and_enqueues_more(
    start: Start, mutual: TlsSettings, with_certificate: Tls
) -> None:
    server = await start(mutual)
    worker, done = Worker(server.address, tls=with_certificate), asyncio.Event()

    @worker.task(QUEUE)
    async def greet(name: str) -> None:
        if name == "first":
            await greet.enqueue_async("second")
        else:
            done.set()

    running = asyncio.create_task(worker.run_async())
    await greet.enqueue_async("first")
    async with asyncio.timeout(10):
        await done.wait()
    worker.request_stop()
    await running


def test_a_worker_with_a_client_takes_no_tls_or_token_of_its_own() -> None:
    with pytest.raises(TypeError, match="tls is for addresses; a client has its own"):
        Worker(AsyncClient("localhost"), tls=True)
    with pytest.raises(TypeError, match="token is for addresses; a client has its own"):
        Worker(AsyncClient("localhost"), token="x")


# --- commands -------------------------------------------------------------------------------------------------------------------
async def command(environment: pytest.MonkeyPatch, *words: str) -> int:
    """Runs a command in a thread of this process; its exit code."""
    environment.setattr("sys.argv", ["pinlater", *words])

    def run() -> int:
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return await asyncio.to_thread(run)


async def test_options_of_a_command_turn_tls_on(
    start: Start,
    mutual: TlsSettings,
    with_certificate: Tls,
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = await start(mutual)
    options = [
        *("--tls-ca", str(with_certificate.ca_file), "--tls-certificate", str(with_certificate.certificate_file)),
        *("--tls-key", str(with_certificate.key_file), "--tls-server-name", "localhost"),
    ]
    assert await command(environment, "queue", "list", "--server", server.address, *options) == 0
    assert capsys.readouterr().out.split() == [QUEUE]
    assert os.environ["PINLATER_TLS"] == "1"  # for the processes that a command starts


async def test_a_command_says_in_one_line_why_there_is_no_connection(
    server: TlsServer, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command(environment, "queue", "list", "--server", server.address, "--tls") == 3
    assert capsys.readouterr().err == (
        f"error: Server {server.address} can't be reached with TLS: "
        "its certificate is from an authority that this client does not know\n"
    )


async def test_a_command_names_the_option_with_a_bad_file(
    server: TlsServer, environment: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        await command(environment, "queue", "list", "--server", server.address, "--tls-ca", str(tmp_path / "none")) == 2
    )
    assert "--tls-ca" in capsys.readouterr().err


async def test_a_connection_stays_in_use_though_the_tls_layer_has_sent_something_of_its_own(
    server: TlsServer, trusting: Tls
) -> None:
    """New keys and session tickets make the socket readable while no answer has come."""
    assert server.certificate is not None
    server.certificate.current.context.num_tickets = 2

    def work() -> int:
        with in_thread(server.address) as proxy, Client(proxy.address, tls=trusting, follow_owners=False) as client:
            for _ in range(5):
                client.queue_names()
            return proxy.connections

    assert await asyncio.to_thread(work) == 1
