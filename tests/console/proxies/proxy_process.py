"""Debian's nginx, HAProxy and Apache as private processes, with the configurations of the page on the console, on free ports."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from tests.databases.ports import free_port
from tests.databases.server_process import program
from tests.tls.certificates import Authority

Kind = Literal["nginx", "haproxy", "apache"]
KINDS: tuple[Kind, ...] = ("nginx", "haproxy", "apache")
NAME, USER, PASSWORD = "jobs.example", "ada", "secret"
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "console.md"
_LANGUAGES = {"nginx": "nginx", "haproxy": "text", "apache": "apache"}
_START_S = 30.0
_APACHE_MODULES = (
    "mpm_event", "ssl", "proxy", "proxy_http", "headers", "alias", "auth_basic", "authn_core", "authn_file", "authz_core", "authz_user"
)  # fmt: skip


def documented(kind: Kind, prefix: str = "", *, users: bool = False, tls: bool = True) -> str:
    """The configuration of the page, changed as the page says."""
    blocks: list[str] = re.findall(rf"^```{_LANGUAGES[kind]}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    [text] = [block for block in blocks if "X-Forwarded-Prefix" in block]
    if not users:
        text = re.sub(r"^ *# users\n.*?^ *# end\n", "", text, flags=re.DOTALL | re.MULTILINE)
    if not tls:
        text = re.sub(r" ssl;| ssl crt \S+", lambda found: ";" if ";" in found[0] else "", text)
        text = text.replace("SSLEngine on", "SSLEngine off").replace("Proto https", "Proto http")
    if prefix:
        return text.replace("/jobs", prefix)
    return "".join(line for line in text.replace("/jobs/", "/").splitlines(True) if "/jobs" not in line)


def configuration(kind: Kind, text: str, folder: Path, port: int, console_port: int) -> str:
    """A whole configuration around a documented one, with files in the folder."""
    text = text.replace("127.0.0.1:9998", f"127.0.0.1:{console_port}")
    text = re.sub(r"/etc/[a-z0-9]+/(console\.(?:pem|key)|people)", rf"{folder}/\1", text)
    if kind == "nginx":
        places = "".join(
            f"{name}_temp_path {folder}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root;" if os.geteuid() == 0 else ""
        head = (
            f"{user} daemon off; worker_processes 1; pid {folder}/pid; events {{}} http {{ access_log off; {places}\n"
        )
        return head + text.replace("listen 443", f"listen 127.0.0.1:{port}") + "}\n"
    if kind == "haproxy":
        head = "defaults\n    timeout connect 10s\n    timeout client 60s\n    timeout server 60s\n\n"
        return head + text.replace("bind :443", f"bind 127.0.0.1:{port}")
    modules = "".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n" for name in _APACHE_MODULES)
    user = "User www-data\nGroup www-data\n" if os.geteuid() == 0 else ""
    return (
        f"ServerRoot {folder}\nDefaultRuntimeDir {folder}\nPidFile {folder}/pid\nMutex file:{folder} default\n{modules}{user}"
        f"ServerName {NAME}\nErrorLog /dev/stderr\nListen 127.0.0.1:{port}\n" + text.replace("*:443", f"127.0.0.1:{port}")
    )  # fmt: skip


def command(kind: Kind, file: Path) -> list[str]:
    """It stays in the foreground."""
    if kind == "nginx":
        return [program("nginx", "nginx"), "-e", "stderr", "-p", str(file.parent), "-c", str(file)]
    if kind == "haproxy":
        return [program("haproxy", "haproxy"), "-db", "-f", str(file)]
    return [program("apache2", "apache2-bin"), "-DFOREGROUND", "-f", str(file)]


@contextmanager
def running(kind: Kind, text: str, console_port: int) -> Iterator[int]:
    """A proxy before a console, with a configuration as the page has it; its port."""
    with tempfile.TemporaryDirectory(prefix="proxy-") as name:
        folder, port = Path(name), free_port()
        folder.chmod(0o755)  # its processes may run as another user
        signed = Authority(folder / "ca").sign(NAME, "127.0.0.1")
        pair = signed.certificate.read_bytes() + signed.key.read_bytes()
        (folder / "console.pem").write_bytes(pair)
        (folder / "console.key").write_bytes(pair)
        digest = base64.b64encode(hashlib.sha1(PASSWORD.encode(), usedforsecurity=False).digest()).decode()
        (folder / "people").write_text(f"{USER}:{{SHA}}{digest}\n")
        file = folder / "proxy.conf"
        file.write_text(configuration(kind, text, folder, port, console_port))
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(command(kind, file), stdout=log, stderr=log) as process,
        ):
            try:
                _wait_for(port, process, folder / "log")
                yield port
            finally:
                process.terminate()
                try:
                    process.wait(_START_S)
                except subprocess.TimeoutExpired:
                    process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < ends:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError(log.read_text())
