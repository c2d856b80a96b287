"""Paths in settings: relative ones are relative to the file that contains them, `~` is the home directory."""

from __future__ import annotations

from pathlib import Path


def resolved(text: str, base: Path | None) -> Path:
    """The path that `text` means; without `base` a relative path stays relative to the working directory. Raises `ValueError`."""
    if "\0" in text:
        raise ValueError("has a zero byte in it")
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise ValueError("names the home directory of a user who is unknown here") from None
    return base / path if base is not None else path
