"""Converts the raw value of a source to the value of a key: types, units and bounds. Pure; every problem is a `ValueError` with a text
for the operator.

Strings are parsed here, since they may have units. msgspec checks whether the value has the type of the key.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.durations import duration_ms
from pinlater.server.config.paths import resolved
from pinlater.server.config.schema import TYPES, Key
from pinlater.server.config.shard_url import NO, YES
from pinlater.server.config.store import StoreLocation, parse_store, without_password
from pinlater.server.config.units import size_bytes

_WHOLE = re.compile(r"(?=.{1,40}$)[+-]?[0-9][0-9_]*", re.ASCII)
_IN_UNITS: Mapping[str, str] = {
    "ms": " of milliseconds, or a duration such as 90s or 10m",
    "seconds": " of seconds, or a duration such as 90s or 10m",
    "bytes": " of bytes, or text such as 16 MiB",
}


def read_value(key: Key, raw: object, base: Path | None = None) -> object:
    """The typed value of `raw`, which is a TOML value or a string. Relative paths count from `base` (None: the working directory)."""
    wrong_type = _shown(key, raw, f"is not {TYPES[key.type]}{_IN_UNITS.get(key.unit, '')}")
    try:
        value: Any = _from_text(key, str(raw), base) if isinstance(raw, str | Path) else raw
        if not isinstance(value, StoreLocation):
            value = msgspec.convert(value, str if key.type is StoreLocation else key.type)
    except msgspec.ValidationError:
        raise ValueError(wrong_type) from None
    except ValueError as error:
        raise ValueError(_shown(key, raw, str(error))) from None
    if key.type is float and not math.isfinite(value):
        raise ValueError(wrong_type)
    if key.type in (int, float) and not key.least <= value <= key.most:
        raise ValueError(_shown(key, raw, f"is out of range ({_range_text(key)})"))
    return value


def _from_text(key: Key, text: str, base: Path | None) -> object:
    """Returns the string parsed as a TOML file would contain it; the string itself if that is impossible. Raises `ValueError` with a
    text that continues a sentence about the string."""
    bare = text.strip()
    has_unit = bare[-1:].isalpha()  # a plain number is in the unit of the key's name
    if key.type is int and _WHOLE.fullmatch(bare):
        return int(bare)
    if key.type is int and has_unit and key.unit in ("ms", "bytes"):
        return duration_ms(text) if key.unit == "ms" else size_bytes(text)
    if key.type is float:
        with contextlib.suppress(ValueError):
            return duration_ms(text) / 1000 if has_unit and key.unit == "seconds" else float(text)
    if key.type is bool and bare.lower() in YES | NO:
        return bare.lower() in YES
    if key.type == tuple[str, ...]:
        return [part.strip() for part in text.split(",") if part.strip()]
    if key.type is Path:
        return resolved(text, base)
    return parse_store(text, base) if key.type is StoreLocation else text


def _shown(key: Key, raw: object, complaint: str) -> str:
    """Returns the problem, preceded by the value unless that is a secret."""
    if key.secret:
        return f"the value {complaint}"
    shown = without_password(str(raw)) if key.type is StoreLocation else str(raw)
    return f"{shown[:80]!r} {complaint}"


def _range_text(key: Key) -> str:
    unit = f" {key.unit}" if key.unit else ""
    if key.most not in (math.inf, I64_MAX):
        return f"{key.least:,} to {key.most:,}{unit}"
    one = key.least == 1 and key.unit in {"bytes", "seconds"}
    return f"{key.least:,}{unit[:-1] if one else unit} or more"
