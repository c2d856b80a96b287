"""The user who runs a command, for the audit."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping

from pinlater.server.config.file_authors import FileAuthor

_SUDO_USER = "SUDO_USER"


def local_author(environ: Mapping[str, str] = os.environ) -> FileAuthor:
    """The login name, or that of the user who called sudo: `alice (local)`, `alice (via sudo)`, `uid 1000 (local)` for a user without a
    name. The words in brackets distinguish it from a token of that name."""
    name, caller = _login_name(), environ.get(_SUDO_USER, "")
    user = f"{caller} (via sudo)" if caller not in ("", name) else f"{name} (local)"
    return FileAuthor(user, socket.gethostname())


def _login_name() -> str:
    user_id = os.getuid()
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"uid {user_id}"
