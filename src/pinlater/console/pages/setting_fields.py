"""The settings of a queue as fields of a form: durations as text such as `10m`, an empty field for the default of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pinlater.console.endpoints.queues import ChangedSettings, SettingsAnswer
from pinlater.console.problems import invalid
from pinlater.console.reading import fields_of
from pinlater.domain.durations import duration_ms, duration_text
from pinlater.domain.queue_settings import QUEUE_SETTINGS, QueueSetting

SETTINGS = {setting.field: setting for setting in QUEUE_SETTINGS}
WAS = "was-"  # before the name of a field: its value when the form was made


class SettingField(NamedTuple):
    """`value`: as stored with the queue, empty for none. `in_force`: the value that applies. `origin`: its source."""

    name: str
    label: str
    value: str
    in_force: str
    origin: str


def fields_shown(answer: SettingsAnswer) -> list[SettingField]:
    """Returns all settings."""
    return [
        SettingField(
            name,
            setting.label,
            _text(setting, getattr(answer.settings, name)),
            _text(setting, getattr(answer.in_force, name)) or setting.unset or "no limit",
            answer.origins.get(name, ""),
        )
        for name, setting in SETTINGS.items()
    ]


def _text(setting: QueueSetting, value: float | str | None) -> str:
    if value is None:
        return ""
    if setting.is_span:
        return duration_text(int(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def changed_fields(form: Mapping[str, str]) -> dict[str, str]:
    """Returns the fields whose value differs from that in the form. An empty field resets the setting to the server's."""
    unknown = [name for name in form if name.removeprefix(WAS) not in SETTINGS]
    if unknown:
        raise invalid(unknown[0], f"There is no setting {unknown[0][:100]!r}")
    return {
        name: form.get(name, "").strip() for name in SETTINGS if form.get(name, "").strip() != form.get(WAS + name, "")
    }


def settings_of(changed: Mapping[str, str]) -> ChangedSettings:
    """The change for the API. Raises RequestRefused, which names the field."""
    values: dict[str, Any] = {}
    for name, text in changed.items():
        setting = SETTINGS[name]
        given = "" if text == setting.unset else text
        try:
            values[name] = duration_ms(given) if given and setting.is_span else given or None
        except ValueError as error:
            raise invalid(name, f"{setting.label}: {text[:100]!r} {error}") from None
    return fields_of(values, ChangedSettings, "form")
