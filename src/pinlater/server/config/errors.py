"""What is wrong with the settings, all of it at once, in text for the operator who edits the file."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SettingsError(Exception):
    """The server must not start. `problems`: one line each, with the place (file and line, variable or flag) in front."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "1 problem with the settings:" if count == 1 else f"{count} problems with the settings:"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean thrift.port?)`, or '' if no known word is similar."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
