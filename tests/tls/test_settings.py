"""What is checked before a server with TLS starts, and what it warns of."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import ssl
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pinlater.server.config.errors import SettingsError
from pinlater.server.config.load import load
from pinlater.server.config.settings import Settings
from pinlater.server.main.app import App
from pinlater.server.main.console_process import ConsoleProcess
from pinlater.server.main.listener_files import CERTIFICATE
from pinlater.tls.certificate import CertificateSource, load_certificate
from pinlater.tls.settings import TlsSettings
from pinlater.tls.trust import CertificateBroken
from tests.tls.certificates import CLIENT, DAY, Authority, KeyPair
from tests.tls.conftest import HOST, copied


def problem(flags: dict[str, Any]) -> str:
    """The only one."""
    with pytest.raises(SettingsError) as raised:
        load(flags=flags)
    [found] = raised.value.problems
    return found


def flags_of(pair: KeyPair, **more: object) -> dict[str, Any]:
    return {
        "tls.certificate_file": str(pair.certificate),
        "tls.key_file": str(pair.key),
        **{f"tls.{name}": value for name, value in more.items()},
    }


def test_good_files_are_accepted_and_warn_of_nothing(authority: Authority) -> None:
    loaded = load(flags=flags_of(authority.sign(HOST), client_ca_file=str(authority.file)))
    assert loaded.warnings == ()
    assert loaded.settings.tls.client_ca_file == authority.file


def test_the_certificate_file_may_hold_the_key(authority: Authority, tmp_path: Path) -> None:
    pair, both = authority.sign(HOST), tmp_path / "both.pem"
    both.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    both.chmod(0o600)
    assert load(flags={"tls.certificate_file": str(both)}).settings.tls.key_file is None


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("no certificate", "can't be read: No such file or directory"),
        ("no key", "can't be read: No such file or directory"),
        ("another key", "the key does not belong to the certificate"),
        ("key not named", "holds no private key in the form PEM; tls.key_file (--tls-key) names the file of the key"),
        ("junk", "holds no certificate in the form PEM"),
        ("locked", "the key is locked by a passphrase; give one without"),
        ("expired", "the certificate expired on "),
        ("too early", "the certificate is not valid before "),
        ("for clients", "clients can't accept the certificate: "),
        ("no authorities", "holds no certificate in the form PEM"),
    ],
)
def test_each_defect_of_the_files_is_named(authority: Authority, tmp_path: Path, broken: str, reason: str) -> None:
    pair = authority.sign(HOST)
    more: dict[str, object] = {}
    match broken:
        case "no certificate":
            pair = pair._replace(certificate=tmp_path / "none.pem")
        case "no key":
            pair = pair._replace(key=tmp_path / "none.key")
        case "another key":
            pair = pair._replace(key=authority.sign(HOST).key)
        case "key not named":
            pair = pair._replace(key=pair.certificate)
        case "junk":
            pair.certificate.write_text("junk")
        case "locked":
            pair = authority.locked(pair)
        case "expired":
            pair = authority.sign(HOST, lasts=-DAY)
        case "too early":
            pair = authority.sign(HOST, lasts=90 * DAY, begins=DAY)
        case "for clients":
            pair = authority.sign(HOST, uses=(CLIENT,))
        case _:
            more["client_ca_file"] = str(pair.key)
    found = problem(flags_of(pair, **more))
    assert found.startswith("--tls-certificate: ")
    assert reason in found
    assert str(tmp_path) in found or str(authority.file.parent) in found


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"tls.key_file": "x"}, "--tls-key: needs certificate_file too: without it there is no TLS"),
        ({"tls.require_client_certificate": "true"}, "needs client_ca_file, which says whose certificates count"),
    ],
)
def test_settings_that_need_others_say_so(flags: dict[str, Any], text: str) -> None:
    assert text in problem(flags)


def test_a_key_that_others_may_read_is_warned_of(authority: Authority) -> None:
    pair = authority.sign(HOST)
    pair.key.chmod(0o644)
    [warning] = load(flags=flags_of(pair)).warnings
    assert "can be read by every user of this machine, and holds the key of the certificate" in warning


def test_a_certificate_without_names_is_warned_of(authority: Authority) -> None:
    [warning] = load(flags=flags_of(authority.sign())).warnings
    assert "no client can verify the name of this server" in warning


def test_tokens_without_tls_beyond_loopback_are_warned_of(authority: Authority, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text('{"tokens": []}')
    tokens.chmod(0o600)
    flags = {"host": "0.0.0.0", "access.tokens_file": str(tokens)}
    [warning] = load(flags=flags).warnings
    assert warning.startswith("listening on 0.0.0.0 without TLS: tokens and jobs cross the network in plain text")
    assert load(flags={**flags, **flags_of(authority.sign(HOST))}).warnings == ()
    assert load(flags={**flags, "host": HOST}).warnings == ()


def test_tls_1_1_is_refused(tls: TlsSettings) -> None:
    for context in load_certificate(tls, time.time())[:2]:
        assert isinstance(context, ssl.SSLContext)
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_the_end_of_the_certificate_is_warned_of_once_a_day(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    pair, now_s = authority.sign(HOST, lasts=20 * DAY), time.time()
    source = CertificateSource(TlsSettings(pair.certificate, pair.key), lambda: now_s)
    source.warn_of_expiry()
    assert caplog.records == []
    now_s += 7 * 86_400
    source.warn_of_expiry()
    source.warn_of_expiry()
    assert [getattr(record, "days_left", None) for record in caplog.records] == [12]
    now_s += 14 * 86_400
    source.warn_of_expiry()
    assert caplog.records[-1].message == "the certificate has expired: clients refuse it"
    authority.sign(HOST, lasts=90 * DAY, into=pair)
    assert source.refresh()
    source.warn_of_expiry()
    assert len(caplog.records) == 2


def test_authorities_of_clients_are_read_again_too(
    mutual: TlsSettings, other_authority: Authority, tmp_path: Path
) -> None:
    [authorities] = copied((mutual.client_ca_file or Path(),), tmp_path)
    source = CertificateSource(replace(mutual, client_ca_file=authorities), time.time)
    before = source.current
    authorities.write_bytes(other_authority.file.read_bytes())
    assert source.refresh()
    assert source.current.context is not before.context
    assert source.current.digest == before.digest


async def test_a_server_looks_at_its_certificate_and_shows_its_end(tls: TlsSettings, tmp_path: Path) -> None:
    certificate, key = copied((tls.certificate_file or Path(), tls.key_file or Path()), tmp_path)
    app = App(_settings(replace(tls, certificate_file=certificate, key_file=key)))
    await app.start()
    try:
        assert shown(app, "tls-certificate-expires-at")[""] > (dt.datetime.now(dt.UTC) + 28 * DAY).timestamp()
        assert shown(app, "file-broken-") == {CERTIFICATE: 0}
        certificate.write_text("junk")
        [look] = [work for work in app.periodic_work.table() if work.name == "certificate"]
        await look.run()
        assert shown(app, "file-broken-") == {CERTIFICATE: 1}
    finally:
        await app.stop(1)


def shown(app: App, gauge: str) -> Mapping[str, float]:
    """A gauge's values by label."""
    [values] = [reading.values for reading in app.metrics.read_gauges() if reading.gauge.name == gauge]
    return values


def _settings(tls: TlsSettings) -> Settings:
    return load(
        flags={
            "store": "memory:",
            "thrift.port": 0,
            "http.port": 0,
            "tls.certificate_file": str(tls.certificate_file),
            "tls.key_file": str(tls.key_file),
        }
    ).settings


def test_a_server_without_files_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(CertificateBroken, match=r"can't be read"):
        App(Settings(tls=TlsSettings(tmp_path / "none.pem")))


async def test_the_console_beside_a_server_trusts_its_certificate(mutual: TlsSettings, tmp_path: Path) -> None:
    given, stopping = tmp_path / "options", asyncio.Event()
    writes = "import sys; open(sys.argv[1], 'w').write(' '.join([*sys.argv[2:], 'end']))"
    certificate = CertificateSource(mutual, time.time)
    console = ConsoleProcess(Settings(tls=mutual), stopping, [sys.executable, "-c", writes, str(given)], certificate)
    console.start(9010)
    async with asyncio.timeout(30):
        while not given.exists() or not given.read_text().endswith("end"):
            await asyncio.sleep(0.01)
    stopping.set()
    await console.end()
    options = given.read_text().split()
    expected = {
        "--tls-ca": str(mutual.certificate_file),
        "--tls-server-name": HOST,
        "--tls-certificate": str(mutual.certificate_file),
        "--tls-key": str(mutual.key_file),
    }
    assert {name: options[options.index(name) + 1] for name in expected} == expected
