"""Layers the sources and checks all of them: flags override the environment, which overrides the file, which overrides defaults.

All problems are reported at once, before anything starts. Nothing is opened or created here; files named by settings
are only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pinlater.domain.invalid_settings import InvalidSettings
from pinlater.server.config.checks import check_together, warnings_about
from pinlater.server.config.environment import read_environment
from pinlater.server.config.errors import SettingsError
from pinlater.server.config.original import read_original
from pinlater.server.config.schema import Key, keys, nearest_key, tables
from pinlater.server.config.settings import INHERITED, SHARED, Settings
from pinlater.server.config.sources import Given, Origin, SettingsSource
from pinlater.server.config.store import StoreLocation
from pinlater.server.config.toml_file import read_toml
from pinlater.server.config.values import read_value


class Loaded(NamedTuple):
    """Checked settings; `origins` names the source of every key's value. Warnings are for the log."""

    settings: Settings
    origins: Mapping[str, Origin]
    warnings: tuple[str, ...] = ()


def load(
    config_path: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    *,
    driver_needed: bool = True,
    tokens_needed: bool = True,
) -> Loaded:
    """Returns the effective settings. Raises `SettingsError` with every problem.

    Without `config_path` the file is the one that PINLATER_CONFIG names, or none. `flags` are values by path (`thrift.port`) or by
    the flag's name (`thrift_port`); None means not given, and a `Given` names a flag of its own. Without `driver_needed` a store whose
    driver is not installed is a warning. Without `tokens_needed` the tokens file is not checked.
    """
    env = env or {}
    path = config_path or env.get("PINLATER_CONFIG")
    sources = [
        _read_flags(flags or {}),
        read_environment(env),
        _read_file(Path(path)) if path else SettingsSource({}),
    ]
    problems = [problem for source in sources for problem in source.problems]
    values, origins = _layer(sources, problems)
    settings = _build(values, origins, problems)
    if settings is not None:
        problems += check_together(settings, origins, driver_needed=driver_needed, tokens_needed=tokens_needed)
    if problems or settings is None:
        raise SettingsError(dict.fromkeys(problems))
    warnings = [warning for source in sources for warning in source.warnings]
    return Loaded(settings, origins, (*warnings, *warnings_about(settings)))


def _read_flags(flags: Mapping[str, object]) -> SettingsSource:
    by_name = {key.path.replace(".", "_"): key for key in keys().values()}
    given: dict[str, Given] = {}
    problems: list[str] = []
    for name, value in flags.items():
        key = by_name.get(name.removeprefix("--").replace(".", "_").replace("-", "_"))
        if key is None:
            problems.append(f"--set {name}: not a setting{nearest_key(name)}")
        elif isinstance(value, Given):
            given[key.path] = value
        elif value is not None and value != "":
            given[key.path] = Given(key.path, value, Origin("flag", key.flag))
    return SettingsSource(given, tuple(problems))


def _read_file(path: Path) -> SettingsSource:
    """The settings file; its suffix tells which of the two formats it has. Java's format is in Latin-1 if it isn't UTF-8."""
    readers = {".toml": read_toml, ".properties": read_original}
    reader = readers.get(path.suffix)
    if reader is None:
        return SettingsSource({}, (f"{path}: a settings file ends in .toml or .properties",))
    try:
        content = path.read_bytes()
        return reader(path, content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        if reader is read_original:
            return reader(path, content.decode("latin-1"))
        return SettingsSource({}, (f"{path}: not text in UTF-8",))
    except OSError as error:
        return SettingsSource({}, (f"{path}: can't be read: {error.strerror or error}",))


def _layer(sources: Iterable[SettingsSource], problems: list[str]) -> tuple[dict[str, object], dict[str, Origin]]:
    """The value of each key from the first source that sets it, and that source; a key that is not set may take another's value.

    Values of the later sources are checked too, except for a store, because an unused store need not exist here.
    """
    values: dict[str, object] = {}
    origins: dict[str, Origin] = {}
    for source in sources:
        for path, item in source.given.items():
            key = keys()[path]
            if path in origins and key.type is StoreLocation:
                continue
            value = _read(key, item, problems)
            if path not in origins:
                values[path], origins[path] = value, item.origin
    for path, key in keys().items():
        if path not in origins:
            above = INHERITED.get(path, path)
            values[path], origins[path] = values.get(above, key.default), origins.get(above, Origin("default"))
    return values, origins


def _read(key: Key, item: Given, problems: list[str]) -> object:
    """The typed value, or, after adding a problem, the default, so that the checks can continue."""
    try:
        if item.fault:
            raise ValueError(item.fault)
        return read_value(key, item.raw, item.base)
    except ValueError as error:
        problems.append(f"{item.origin.place}: {error}")
        return key.default


def _build(values: Mapping[str, object], origins: Mapping[str, Origin], problems: list[str]) -> Settings | None:
    """Builds the value objects. A table's own check (`InvalidSettings` from its dataclass) is a problem like any other."""
    parts: dict[str, Any] = {path: value for path, value in values.items() if "." not in path}
    for table, owner in tables().items():
        inner = {path.partition(".")[2]: value for path, value in values.items() if path.startswith(table + ".")}
        shared = {path.partition(".")[2]: values[of] for path, of in SHARED.items() if path.startswith(table + ".")}
        try:
            parts[table] = owner(**inner, **shared)
        except InvalidSettings as error:
            places = [origins[f"{table}.{name}"].place for name in error.fields]
            problems.append(f"{', '.join(filter(None, places)) or table}: {error}")
            return None
    return Settings(**parts)
