"""OptionGroup for the quota of a token, and its display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pinlater.cli import options
from pinlater.cli.call import OptionGroup
from pinlater.server.access.quotas import OwnQuota, check_bytes
from pinlater.server.access.tokens import QUOTA_FIELDS
from pinlater.server.config.units import size_bytes

_DEFAULT = "default"
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@dataclass(frozen=True)
class QuotaOptions(OptionGroup):
    """The bounds that the options give."""

    max_connections: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Most connections to each server process; 0: no bound; default: as the server says."
        ),
    ] = None
    max_polls: Annotated[
        str | None, typer.Option(metavar="N", help="Most dequeues that wait for jobs; or 0, or default.")
    ] = None
    max_bytes_in_flight: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Most bytes of unanswered requests and unread answers, as 64MiB; or 0, or default."
        ),
    ] = None

    def change(self, quota: OwnQuota) -> OwnQuota:
        """Returns the quota with these bounds; a bound whose option is missing stays."""
        connections, polls, size = self.max_connections, self.max_polls, self.max_bytes_in_flight
        return OwnQuota(
            quota.connections if connections is None else _number(connections, "--max-connections"),
            quota.polls if polls is None else _number(polls, "--max-polls"),
            quota.bytes_in_flight if size is None else _size(size, "--max-bytes-in-flight"),
        )


def _number(text: str, option: str) -> int | None:
    if text == _DEFAULT:
        return None
    if not (text.isascii() and text.isdigit()):
        raise typer.BadParameter(f"{text!r} is not a whole number of at least 0, or default", param_hint=option)
    return int(text)


def _size(text: str, option: str) -> int | None:
    if text == _DEFAULT:
        return None
    try:
        bound = int(text) if text.isascii() and text.isdigit() else size_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}, or default", param_hint=option) from None
    with options.naming(option):
        return check_bytes(bound)


def shown_quota(quota: OwnQuota) -> str:
    """The bounds in words; '-' if the token has none of its own."""
    parts = [
        _shown(quota.connections, "connections"),
        _shown(quota.polls, "polls"),
        _shown(quota.bytes_in_flight, "in flight", in_bytes=True),
    ]
    return ", ".join(part for part in parts if part) or "-"


def _shown(bound: int | None, what: str, *, in_bytes: bool = False) -> str:
    if bound is None:
        return ""
    if not bound:
        return f"any {what}" if not in_bytes else f"any bytes {what}"
    return f"{_size_text(bound) if in_bytes else bound} {what}"


def _size_text(bound: int) -> str:
    for factor, unit in _UNITS:
        if bound % factor == 0:
            return f"{bound // factor} {unit}"
    return f"{bound} bytes"


def quota_json(quota: OwnQuota) -> dict[str, int | None]:
    """Returns all bounds, or None where the default of the server applies."""
    return dict(zip(QUOTA_FIELDS.values(), quota, strict=True))
