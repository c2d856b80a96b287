"""The options of a job in their stored form: JSON in the one column `jobs.options`, by the names of their fields.

A plain job has NULL there, and pays nothing for options that it doesn't use.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, json
from msgspec.structs import replace

from pinlater.domain.job import UniqueKey
from pinlater.domain.transitions import MYSQL_STATUS, StatusRule


class Options(Struct, frozen=True, omit_defaults=True):
    """What few jobs have. Stores and other servers get it as a whole, with the names of these fields.

    A field that is added has a default and goes last. `timeout_ms`: of a claim.
    """

    status: str = ""
    headers: Mapping[str, str] | None = None
    unique: UniqueKey | None = None
    timeout_ms: int | None = None
    expires_ms: int | None = None
    ordering_key: str | None = None


NONE = Options()
_encode = json.Encoder().encode
_decode = json.Decoder(Options).decode
_ONLY_ORDER = '{"ordering_key":"'


BEHIND_MS = 2**46
"""Jobs that wait behind others of their ordering key have run-afters above this: their number is added. It is in the year 4199, which is
later than any time that a job with a key can have; SQLite stores it in as many bytes as a present time, and a float represents it
exactly."""


BEHIND_MAX = 10_000
"""At most this many such jobs of one priority of a queue are counted."""


LET_GO_MS, STOPPED_MS = BEHIND_MS + 1, BEHIND_MS + 2
"""Values that the row of a job among those of its key may have instead of the job's own due time: it does not wait behind others, or it
has failed finally and stops its key. A queue in which one job of a key is ready or claimed at a time marks only the latter."""


def is_behind(options: Options, run_after_ms: int) -> bool:
    """Returns whether a waiting job waits behind others of its ordering key."""
    return run_after_ms > BEHIND_MS and options.ordering_key is not None


def has_only_order(text: str) -> bool:
    """Returns whether these options, in their stored form, are known to be only an ordering key. False may be wrong."""
    return text.startswith(_ONLY_ORDER) and '","' not in text


def has_expired(options: Options, now_ms: int) -> bool:
    """Returns whether a claim fails the job instead of handing it out, and a retry leaves it FAILED."""
    return options.expires_ms is not None and options.expires_ms < now_ms


def options_text(options: Options | None, rule: StatusRule = MYSQL_STATUS) -> str | None:
    """Returns the stored form, for `options_of`, or None for a plain job. `rule` cuts the status."""
    if options is None or options == NONE:
        return None
    if options.status:
        options = replace(options, status=rule.at_enqueue(options.status))
    return _encode(options).decode()


def options_of(text: str | None) -> Options:
    """Returns the options from their stored form."""
    return NONE if text is None else _decode(text)
