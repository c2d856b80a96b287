"""Replaces the generated regions of a page while Sphinx builds it. `make reference` writes those of the kinds in `STORED` into the page.

    <!-- generated: KIND ARGUMENTS -->
    The same, or where a reader of the repository finds it.
    <!-- end of generated -->

| kind | arguments | what the region becomes |
|---|---|---|
| `python` | dotted names, then `given`, then `without` and names of methods | what the names take and do |
| `metrics` | `queue-counters`, `queue-distributions`, `methods` or `figures` | the table of these metrics |
| `http-api` | `endpoints`, `shapes` or `statuses` | these of the HTTP API |
| `access` | `roles` or `methods` | the table of roles, or of the roles that each method needs |
| `settings` | | the tables of all settings |
| `job-life` | | the table of the transitions of a job |
| `faults` | | the table of the faults that can be simulated |
| `file` | a path below the repository, then `from` and the text that its first shown line begins with | the file in a code block |
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from pinlater.domain.durations import duration_text
from pinlater.domain.transitions import TRANSITIONS
from pinlater.simulation.fault_kinds import FAULT_KINDS
from scripts.reference import access, http_api, metrics, settings
from scripts.reference.python_names import described

REPOSITORY = Path(__file__).resolve().parents[2]
REGION = re.compile(
    r"(?P<begin><!-- generated: (?P<kind>[a-z-]+)(?P<arguments>[^\n]*?) -->\n).*?(?P<end><!-- end of generated -->)",
    re.DOTALL,
)
STORED = ("access", "job-life", "metrics", "settings")
_LANGUAGES = {".py": "python", ".thrift": "thrift"}


def rewritten(page: str) -> str:
    """The page with each of its generated regions made anew."""
    return REGION.sub(_region, page)


def stored(page: str) -> str:
    """The page with the regions made anew that the repository stores."""
    return REGION.sub(lambda match: _region(match) if match["kind"] in STORED else match[0], page)


def without_regions(page: str) -> str:
    """The text of the page that people wrote."""
    return REGION.sub("", page)


def _region(match: re.Match[str]) -> str:
    body = _KINDS[match["kind"]](shlex.split(match["arguments"]))
    return f"{match['begin']}\n{body}\n\n{match['end']}"


def _python(arguments: list[str]) -> str:
    names, _, without = _split(arguments, "without")
    given = "given" in names
    parts = [described(name, given=given, without=without) for name in names if name != "given"]
    text = "\n\n".join(parts)
    return re.sub(r"(^- [^\n]*(?:\n  [^\n]*)*)\n\n(?=- )", r"\1\n", text, flags=re.MULTILINE)


def _metrics(arguments: list[str]) -> str:
    [table] = arguments
    return metrics.TABLES[table]()


def _http_api(arguments: list[str]) -> str:
    [table] = arguments
    return "\n".join(http_api.TABLES[table]()).rstrip()


def _access(arguments: list[str]) -> str:
    [table] = arguments
    return "\n".join(access.TABLES[table]())


def _job_life(_arguments: list[str]) -> str:
    rows = [f"| {t.event.value} | {t.before.name} | {t.after.name} | {t.spends or '–'} |" for t in TRANSITIONS]
    return "\n".join(["| what happens | to a job that is | it becomes | attempts spent |", "|---|---|---|---|", *rows])


def _faults(_arguments: list[str]) -> str:
    rows = [f"| `{kind.name}` | {duration_text(kind.lasts_ms)} | {kind.text} |" for kind in FAULT_KINDS.values()]
    return "\n".join(["| fault | lasts | what it does |", "|---|---|---|", *rows])


def _file(arguments: list[str]) -> str:
    [path], _, begin = _split(arguments, "from")
    text = (REPOSITORY / path).read_text()
    shown = text[text.index(f"\n{begin[0]}") + 1 :] if begin else text
    return f"```{_LANGUAGES[Path(path).suffix]}\n{shown.rstrip()}\n```"


def _settings(_arguments: list[str]) -> str:
    return settings.tables_of_keys()


def _split(arguments: list[str], word: str) -> tuple[list[str], str, list[str]]:
    if word not in arguments:
        return arguments, word, []
    at = arguments.index(word)
    return arguments[:at], word, arguments[at + 1 :]


_KINDS: dict[str, Callable[[list[str]], str]] = {
    "python": _python,
    "metrics": _metrics,
    "http-api": _http_api,
    "access": _access,
    "settings": _settings,
    "job-life": _job_life,
    "faults": _faults,
    "file": _file,
}


if __name__ == "__main__":
    for path in (REPOSITORY / "docs/reference").glob("*.md"):
        path.write_text(stored(path.read_text()))
