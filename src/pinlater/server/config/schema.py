"""The keys of the settings, derived from the dataclasses: name, type, default, bounds, variable and flag of each.

A field has its bounds (inclusive) as msgspec's `Meta`, and `secret` in its metadata. Without bounds a whole number is at least 1 (0 if
the default is 0), a port is 0 to 65535, a duration at most ten years: the name tells which of these it is.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Meta

from pinlater.domain.descriptor import I64_MAX
from pinlater.server.config.errors import did_you_mean
from pinlater.server.config.settings import FLAGS, SHARED, Settings
from pinlater.server.config.store import StoreLocation

ENV_PREFIX = "PINLATER_"
TEN_YEARS_MS = 10 * 366 * 86_400_000

TYPES: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    StoreLocation: "a store",
    tuple[str, ...]: "a list of texts",
}
"""What a value can be, and how a message calls it."""


class Key(NamedTuple):
    """One setting. `path` is its name in a TOML file, `table.field`; `least` and `most` are inclusive."""

    table: str
    field: str
    type: Any
    default: object
    least: float
    most: float
    secret: bool

    @property
    def path(self) -> str:
        return f"{self.table}.{self.field}" if self.table else self.field

    @property
    def variable(self) -> str:
        return ENV_PREFIX + self.path.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        return FLAGS.get(self.path, f"--set {self.path}")

    @property
    def unit(self) -> str:
        """Returns `ms`, `seconds` or `bytes` from the name; '' if the name has no unit."""
        words = self.field.split("_")
        if "bytes" in words:
            return "bytes"
        return "ms" if "ms" in words else "seconds" if words[-1] == "s" else ""


@cache
def keys() -> Mapping[str, Key]:
    """Returns all settings by path, in the order of the dataclasses."""
    return {key.path: key for key in _keys_of(Settings, "")}


@cache
def tables() -> Mapping[str, type]:
    """The dataclasses by the name of their table."""
    hints = typing.get_type_hints(Settings)
    return {f.name: hints[f.name] for f in fields(Settings) if is_dataclass(hints[f.name])}


def nearest_key(name: str) -> str:
    """A hint at the path that an unknown `name` may mean: the same field of another table, or else a path with a similar spelling."""
    same_field = [path for path, key in keys().items() if key.field == name.rpartition(".")[2]]
    return f" (did you mean {same_field[0]}?)" if same_field else did_you_mean(name, keys())


def key_of_option(option: str) -> Key | None:
    """The setting that an option such as `--console-port` or `--claim-timeout-ms` would name, or None if there is none, or several."""
    name = option.removeprefix("--").replace("-", "_")
    found = [key for key in keys().values() if name in (key.path.replace(".", "_"), key.field)]
    return found[0] if len(found) == 1 else None


def _keys_of(owner: type, table: str) -> Iterator[Key]:
    hints = typing.get_type_hints(owner, include_extras=True)
    for item in fields(owner):
        if is_dataclass(hints[item.name]):
            yield from _keys_of(hints[item.name], item.name)
        elif f"{table}.{item.name}" not in SHARED:
            yield _key(table, item, hints[item.name])


def _key(table: str, item: Field[Any], hint: Any) -> Key:
    bounds = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Meta)), Meta())
    kind = getattr(hint, "__origin__", hint) if hasattr(hint, "__metadata__") else hint
    if isinstance(kind, types.UnionType):
        (kind,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
    if kind not in TYPES or item.default is MISSING:
        raise TypeError(f"setting {table}.{item.name} has no default, or a type that no file can hold: {hint}")
    least, most = _range(item.name, kind, item.default)
    least, most = (usual if own is None else own for own, usual in ((bounds.ge, least), (bounds.le, most)))
    return Key(table, item.name, kind, item.default, least, most, bool(item.metadata.get("secret")))


def _range(name: str, kind: object, default: object) -> tuple[float, float]:
    """Returns the bounds that the name and the type imply."""
    if kind is float:
        return 0, TEN_YEARS_MS // 1000 if name.endswith("_s") else math.inf
    if name == "port" or name.endswith("_port"):
        return 0, 65_535
    least = 0 if default == 0 else 1
    return least, TEN_YEARS_MS if "ms" in name.split("_") else I64_MAX
