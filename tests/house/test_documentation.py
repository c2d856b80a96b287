"""The docs build without a warning, hang together, and speak of commands that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from pinlater.client import errors
from scripts.reference.regions import rewritten

# A link to a file of the repository; not to the web, and not an image of the web.
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="session")
def pages(repository: Path) -> dict[str, str]:
    """All pages by their path below docs/, and README and CONTRIBUTING beside them."""
    docs = repository / "docs"
    found = {str(p.relative_to(docs)): p.read_text() for p in docs.rglob("*.md") if "_build" not in p.parts}
    return found | {f"../{name}": (repository / name).read_text() for name in ("README.md", "CONTRIBUTING.md")}


def test_the_documentation_builds_without_a_warning(repository: Path, tmp_path: Path) -> None:
    """A broken link, an unknown reference or a page in no table of contents is a warning, and so an error.

    The build makes the parts of the pages that follow from the code.
    """
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(tmp_path)]
    built = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "CONTINUATION_START" in (tmp_path / "reference/protocol.html").read_text()


def test_every_link_between_files_leads_to_a_file_and_a_heading_that_exist(
    repository: Path, tracked_files: list[Path]
) -> None:
    """In all Markdown of the repository, as its browser follows them."""
    broken = [
        f"{page.relative_to(repository)}: {link}"
        for page in tracked_files
        if page.suffix == ".md"
        for link in LINK.findall(CODE.sub("", page.read_text()))
        if not leads_somewhere(page, link)
    ]
    assert broken == []


def leads_somewhere(page: Path, link: str) -> bool:
    """Whether the link's file exists and, if the link has an anchor, has a heading of that name."""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub and our build make them."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.replace("`", "").lower()).strip().replace(" ", "-") for heading in headings}


def test_install_lines_install_from_a_checkout_or_a_wheel(pages: dict[str, str]) -> None:
    """The package is in no index yet. The release checklist removes this test and changes the pages."""
    assert [page for page, text in pages.items() if re.search(r"pip install ['\"]?pinlater", text)] == []


def test_pages_and_examples_call_a_task_a_task(repository: Path, tracked_files: list[Path]) -> None:
    """`@worker.handler` still works, which one page says."""
    old = [
        f"{path.relative_to(repository)}: {line}"
        for path in tracked_files
        if path.suffix in (".md", ".py")
        and path.parts[len(repository.parts)] in ("README.md", "docs", "examples", "src")
        for line in path.read_text().splitlines()
        if "worker.handler" in line
    ]
    assert [line.partition(":")[0] for line in old] == ["docs/reference/worker.md", "src/pinlater/worker/worker.py"]


def test_pages_are_plain_markdown(pages: dict[str, str]) -> None:
    """A directive or a remark of Sphinx is visible text in any other viewer."""
    marks = re.compile(r"^(?: *```\{|:::|% )", re.MULTILINE)
    assert [page for page, text in pages.items() if marks.search(text)] == []


@pytest.mark.parametrize("package", ["client", "worker", "testing"])
def test_every_public_name_of_the_sdk_is_in_its_reference(package: str, pages: dict[str, str]) -> None:
    page = rewritten(pages[f"reference/{package}.md"])
    public = import_module(f"pinlater.{package}").__all__
    assert [name for name in public if not re.search(rf"\b{name}\b", page)] == []


def test_every_error_of_the_client_is_in_its_reference(pages: dict[str, str]) -> None:
    names = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert [name for name in names if not re.search(rf"\b{name}\b", pages["reference/client.md"])] == []


def test_every_make_target_in_the_docs_exists(repository: Path, pages: dict[str, str]) -> None:
    """`make` followed by a word, in code."""
    targets = set(re.findall(r"^\.PHONY: (\S+)$", (repository / "Makefile").read_text(), re.MULTILINE))
    named = {
        (page, name)
        for page, text in pages.items()
        for name in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)
    }
    assert {(page, name) for page, name in named if name not in targets} == set()
