"""The settings of a queue as fields of a form: durations as text such as `10m`, an empty field for the default of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pinlater.console.problems import invalid
from pinlater.console.reading import fields_of
from pinlater.console.shapes.queues import ChangedSettings, SettingsAnswer
from pinlater.domain.durations import duration_ms, duration_text
from pinlater.domain.queue import UNSET

LABELS = {
    "max_jobs_per_second": "Jobs per second, at most",
    "burst": "Jobs saved up for a burst, at most",
    "max_backlog": "Pending jobs, at most",
    "claim_timeout_ms": "Claim timeout",
    "default_attempts": "Attempts of a job",
    "default_expiry_ms": "Expiry of a job",
    "succeeded_ttl_ms": "Keep succeeded jobs for",
    "failed_ttl_ms": "Keep failed jobs for",
    "partitions": "Shards, as partitions",
    "max_in_hand_per_key": "Jobs of an ordering key in hand, at most",
    "retry_place": "Where a job with an ordering key waits for its retry",
    "after_failure": "What a job with an ordering key does that fails finally",
}
WITHOUT = {"burst": "those of a second", **UNSET}  # what applies where nothing is set, if that is not "no limit"
WAS = "was-"  # before the name of a field: its value when the form was made


class SettingField(NamedTuple):
    """`value`: as stored with the queue, empty for none. `in_force`: what applies. `origin`: where that comes from."""

    name: str
    label: str
    value: str
    in_force: str
    origin: str


def fields_shown(answer: SettingsAnswer) -> list[SettingField]:
    """All settings, in the order of `LABELS`."""
    return [
        SettingField(
            name,
            label,
            _text(name, getattr(answer.settings, name)),
            _text(name, getattr(answer.in_force, name)) or WITHOUT.get(name, "no limit"),
            answer.origins.get(name, ""),
        )
        for name, label in LABELS.items()
    ]


def _text(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return (
        duration_text(int(value)) if name.endswith("_ms") else f"{value:g}" if isinstance(value, float) else str(value)
    )


def changed_fields(form: Mapping[str, str]) -> dict[str, str]:
    """The fields with another value than when the form was made; an empty one returns the setting to the server."""
    unknown = [name for name in form if name.removeprefix(WAS) not in LABELS]
    if unknown:
        raise invalid(unknown[0], f"There is no setting {unknown[0][:100]!r}")
    return {
        name: form.get(name, "").strip() for name in LABELS if form.get(name, "").strip() != form.get(WAS + name, "")
    }


def settings_of(changed: Mapping[str, str]) -> ChangedSettings:
    """The change for the API. Raises RequestRefused that names the field."""
    values: dict[str, Any] = {}
    for name, text in changed.items():
        try:
            given = "" if text == WITHOUT.get(name) else text
            values[name] = duration_ms(given) if given and name.endswith("_ms") else given or None
        except ValueError as error:
            raise invalid(name, f"{LABELS[name]}: {text[:100]!r} {error}") from None
    return fields_of(values, ChangedSettings, "form")
