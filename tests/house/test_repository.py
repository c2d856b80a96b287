"""What the repository promises about itself: version, changelog, Makefile, docs, nothing that belongs to one machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pinlater import __version__

# Text that would tie the repository to one machine. Written in pieces, so that this file passes its own test.
MACHINE_TEXT = re.compile("|".join(["/" + "work/", "/" + "home/[a-z]", "/" + "root/", "/" + "tmp/[a-z]"]))
# The lock file holds the public index's addresses by its nature.
NOT_PROSE = {"uv.lock", "LICENSE"}
PICTURES = {".png"}


def test_the_changelog_has_a_section_for_this_version(repository: Path) -> None:
    assert f"## [{__version__}]" in (repository / "CHANGELOG.md").read_text()


def test_the_command_prints_the_packages_version() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("pinlater"), "--version"], capture_output=True, check=True, text=True
    )
    assert __version__ in done.stdout


def test_the_licence_is_the_whole_apache_text(repository: Path) -> None:
    text = (repository / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_no_tracked_file_names_a_place_on_one_machine(tracked_files: list[Path], repository: Path) -> None:
    found = [
        f"{path.relative_to(repository)}:{number}: {line.strip()[:80]}"
        for path in tracked_files
        if path.suffix not in PICTURES and path.name not in NOT_PROSE
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MACHINE_TEXT.search(line)
    ]
    assert found == []


def test_each_tracked_file_is_text_or_a_picture(tracked_files: list[Path]) -> None:
    assert [path for path in tracked_files if b"\0" in path.read_bytes() and path.suffix not in PICTURES] == []


class TestMakefile:
    """`make help` is the list of what can be done."""

    @pytest.fixture
    def makefile(self, repository: Path) -> str:
        return (repository / "Makefile").read_text()

    def test_help_is_the_default_and_lists_every_target(self, makefile: str, repository: Path) -> None:
        targets = set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE))
        shown = subprocess.run(["make", "-s"], cwd=repository, capture_output=True, check=True, text=True).stdout
        assert targets == set(re.findall(r"^  make (\S+) ", shown, re.MULTILINE))

    def test_every_target_is_declared_phony(self, makefile: str) -> None:
        targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
        assert targets == set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE))

    def test_every_file_that_it_calls_is_there(self, makefile: str, repository: Path) -> None:
        called = set(re.findall(r"(?<![\w./-])(scripts/[\w./-]+)", makefile))
        modules = [name.replace(".", "/") for name in re.findall(r"python -m ([a-z.]+)", makefile)]
        missing = [
            name
            for name in modules
            if not any(
                (repository / place).exists() for place in (f"{name}/__main__.py", f"{name}.py", f"src/{name}.py")
            )
        ]
        assert missing + sorted(name for name in called if not (repository / name).exists()) == []
