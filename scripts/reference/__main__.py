"""`python -m scripts.reference` writes the generated parts of docs/ anew; with `--check` it names the stale pages and exits with 1."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pinlater.cli.reference import page as commands_page
from scripts.reference.regions import REPOSITORY, rewritten
from scripts.reference.settings import page as settings_page

DOCS = REPOSITORY / "docs"
COMMANDS, SETTINGS = DOCS / "reference/cli.md", DOCS / "reference/settings.md"


def fresh_pages() -> Iterator[tuple[Path, str]]:
    """Each page of docs/ with the text that it must have."""
    for path in sorted(DOCS.rglob("*.md")):
        if "_build" in path.parts:
            continue
        text = path.read_text()
        yield (
            path,
            settings_page() if path == SETTINGS else commands_page(text) if path == COMMANDS else rewritten(text),
        )


def main(check: bool) -> int:
    """Writes the stale pages, or only names them; the exit code."""
    stale = [(path, text) for path, text in fresh_pages() if path.read_text() != text]
    for path, text in stale:
        sys.stdout.write(f"{'stale' if check else 'written'}: {path.relative_to(REPOSITORY)}\n")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
