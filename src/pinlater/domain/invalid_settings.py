"""The error of a table of settings whose values can't be used."""

from __future__ import annotations


class InvalidSettings(ValueError):
    """`fields` names the settings that the message is about, so that a reader of configuration can name the source of each."""

    def __init__(self, message: str, *fields: str) -> None:
        super().__init__(message)
        self.fields = fields
