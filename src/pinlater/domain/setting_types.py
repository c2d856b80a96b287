"""Checks of the types of settings that a program gives. Errors name the setting."""

from __future__ import annotations

from pinlater.domain.durations import duration_ms


def check_integer(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raises TypeError if `value` is not an integer, and ValueError if it is below `least` or above `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        unit = " of milliseconds" if name.endswith("_ms") else ""
        given = repr(value) if isinstance(value, str) else type(value).__name__
        raise TypeError(f"{name} must be an integer{unit}, not {given}{_in_milliseconds(name, value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")


def _in_milliseconds(name: str, value: object) -> str:
    """Returns what to write instead of a duration with a unit; '' for other values."""
    argument = name.rpartition(" ")[2]
    if not argument.endswith("_ms") or not isinstance(value, str) or not value[-1:].isalpha():
        return ""
    try:
        return f"; write {argument}={duration_ms(value):_}"
    except ValueError:
        return ""


def check_yes_or_no(name: str, value: object) -> None:
    """Raises TypeError if `value` is not a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
