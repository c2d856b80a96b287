"""From what a source holds to the value of a key: types, units and ranges. Pure; every fault is a `ValueError` in words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.durations import duration_ms
from pinlater.server.config.paths import resolved
from pinlater.server.config.schema import Key, ValueKind
from pinlater.server.config.store import StoreLocation, parse_store, without_password
from pinlater.server.config.units import size_bytes

_WHOLE = re.compile(r"[+-]?[0-9][0-9_]*", re.ASCII)
_YES = frozenset({"true", "yes", "on", "1"})
_NO = frozenset({"false", "no", "off", "0"})


def read_value(key: Key, raw: object, base: Path | None = None) -> object:
    """The typed value of `raw`, which is a TOML value or text. Relative paths count from `base` (None: the working directory)."""
    value = _READERS[key.kind](key, raw, base)
    if isinstance(value, int | float) and not key.least <= value <= key.most:
        raise ValueError(_shown(key, raw, f"is out of range ({_range_text(key)})"))
    if key.choices and value not in key.choices:
        raise ValueError(_shown(key, raw, f"is not one of {', '.join(key.choices)}"))
    return value


def _read_int(key: Key, raw: object, _base: Path | None) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str):
        text = raw.strip()
        if _WHOLE.fullmatch(text) and len(text) <= 40:
            return int(text)
        if (
            key.unit in ("ms", "bytes") and text[-1:].isalpha()
        ):  # a bare number is in the unit of the key's name, and whole
            return _with_unit(key, raw)
    raise ValueError(_not_a(key, raw))


def _with_unit(key: Key, raw: str) -> int:
    try:
        return duration_ms(raw) if key.unit == "ms" else size_bytes(raw)
    except ValueError as error:
        raise ValueError(_shown(key, raw, str(error))) from None


def _read_float(key: Key, raw: object, _base: Path | None) -> float:
    try:
        if not isinstance(raw, int | float | str) or isinstance(raw, bool):
            raise ValueError(raw)  # noqa: TRY004 (one message for every kind of fault)
        value = _number(key, raw)
    except (ValueError, OverflowError):
        raise ValueError(_not_a(key, raw)) from None
    if not math.isfinite(value):
        raise ValueError(_not_a(key, raw))
    return value


def _number(key: Key, raw: float | str) -> float:
    if isinstance(raw, str) and key.unit == "seconds" and raw.strip()[-1:].isalpha():
        return duration_ms(raw) / 1000
    return float(raw)


def _read_bool(key: Key, raw: object, _base: Path | None) -> bool:
    if isinstance(raw, bool):
        return raw
    word = raw.strip().lower() if isinstance(raw, str) else ""
    if word in _YES or word in _NO:
        return word in _YES
    raise ValueError(_not_a(key, raw))


def _read_text(key: Key, raw: object, _base: Path | None) -> str:
    if not isinstance(raw, str):
        raise ValueError(_not_a(key, raw))  # noqa: TRY004 (callers expect one type of error)
    return raw


def _read_path(key: Key, raw: object, base: Path | None) -> Path:
    text = str(raw) if isinstance(raw, Path) else _read_text(key, raw, base)
    try:
        return resolved(text, base)
    except ValueError as error:
        raise ValueError(_shown(key, raw, str(error))) from None


def _read_store(key: Key, raw: object, base: Path | None) -> StoreLocation:
    text = _read_text(key, raw, base)
    try:
        return parse_store(text, base)
    except ValueError as error:
        raise ValueError(_shown(key, raw, str(error))) from None


def _read_list(key: Key, raw: object, _base: Path | None) -> tuple[str, ...]:
    """A list; as text its members are parted by commas."""
    if isinstance(raw, str):
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    if isinstance(raw, list | tuple) and all(isinstance(part, str) for part in raw):
        return tuple(raw)
    raise ValueError(_not_a(key, raw))


_READERS: Mapping[ValueKind, Callable[[Key, object, Path | None], object]] = {
    ValueKind.INT: _read_int,
    ValueKind.FLOAT: _read_float,
    ValueKind.BOOL: _read_bool,
    ValueKind.TEXT: _read_text,
    ValueKind.PATH: _read_path,
    ValueKind.STORE: _read_store,
    ValueKind.LIST: _read_list,
}


def _not_a(key: Key, raw: object) -> str:
    expected = key.kind.value
    if key.unit == "ms":
        expected += " of milliseconds, or a duration such as 90s or 10m"
    elif key.unit == "seconds":
        expected += " of seconds, or a duration such as 90s or 10m"
    elif key.unit == "bytes":
        expected += " of bytes, or text such as 16 MiB"
    return _shown(key, raw, f"is not {expected}")


def _shown(key: Key, raw: object, complaint: str) -> str:
    """The complaint with the value in front; secrets stay out of it."""
    if key.secret:
        return f"the value {complaint}"
    shown = without_password(str(raw)) if key.kind is ValueKind.STORE else str(raw)
    return f"{shown[:80]!r} {complaint}"


def _range_text(key: Key) -> str:
    unit = f" {key.unit}" if key.unit else ""
    if key.most not in (math.inf, I64_MAX):
        return f"{key.least:,} to {key.most:,}{unit}"
    one = key.least == 1 and key.unit in {"bytes", "seconds"}
    return f"{key.least:,}{unit[:-1] if one else unit} or more"
