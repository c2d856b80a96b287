"""Forbidden words only become fewer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import language


@pytest.mark.parametrize("area", language.AREAS)
def test_no_area_has_more_forbidden_words_than_before(area: str) -> None:
    """`FORBIDDEN` has the words to write instead; `python -m tests.house.language --where AREA` prints the places."""
    found = list(language.found_in(area))
    allowed = language.stored()[area]
    assert len(found) <= allowed, found[-20:]


def test_the_documentation_has_no_forbidden_words() -> None:
    assert language.stored()["docs"] == 0


def test_words_are_counted_in_prose_and_not_in_code(tmp_path: Path) -> None:
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("The house `house`\n\n```sh\nhouse\n```\n\n[x](house.md) house-keeping, hours\n")
    module.write_text(
        'house = "a room"  # nobody\n\n\ndef meeting() -> str:\n    """A `pulse`."""\n    return f"{house} mended"\n'
    )
    counted = {path.name: _words(path) for path in (page, module)}
    assert counted == {"page.md": ["house"], "module.py": ["mended", "nobody", "room"]}


def test_words_are_counted_where_names_are_given(tmp_path: Path) -> None:
    module = tmp_path / "rivalry.py"
    module.write_text(
        "class BigHouse:\n"
        "    async def _has_room(self, twin: int) -> None:\n"
        "        self.patience_s = twin\n"
        "\n"
        "\n"
        "NOBODY, roomy_households = house.rooms, [_ for out_of_reach in ()]\n"
    )
    assert _names(module) == [
        (1, "House"),
        (1, "rivalry"),
        (2, "room"),
        (2, "twin"),
        (3, "patience"),
        (6, "NOBODY"),
        (6, "out of reach"),
    ]


def test_words_are_counted_in_what_people_read_of_a_template(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "{# nobody #}\n"
        '{% if room %}<p class="house" title="the\ntwin" data-live>anyone {{ pulse|default("no one") }}</p>{% endif %}\n'
        "<b>mended</b>\n"
    )
    found = [
        (line + text.count("\n", 0, text.index(word)), word)
        for line, text in language.prose(page)
        for word in language.words_in(text)
    ]
    assert found == [(1, "nobody"), (3, "twin"), (3, "anyone"), (3, "no one"), (4, "mended")]


def test_words_are_counted_in_texts_and_names_of_scripts(tmp_path: Path) -> None:
    script, page_script = tmp_path / "vanished.lua", tmp_path / "page.js"
    script.write_text(
        "local function mend(ref, twin)\n    local room, heart = rival.x, 'house' -- nobody\n    mend(room)\nend\n"
    )
    page_script.write_text(
        'const neighbours = house.rooms; /* a\nbook */ let ok = "nobody"; // anyone\n'
        "function hurry(pulse) { this.fitness = (ear) => `mended`; }\n"
    )
    assert _words(script) == ["nobody"]
    assert _words(page_script) == ["anyone", "book", "mended", "nobody"]
    assert _names(script) == [(1, "mend"), (1, "twin"), (1, "vanished"), (2, "heart"), (2, "room")]
    assert _names(page_script) == [(1, "neighbours"), (3, "ear"), (3, "fitness"), (3, "hurry"), (3, "pulse")]


@pytest.mark.parametrize(
    "text",
    [
        "anyone",
        "everybody's turn",
        "somebodys machine",
        "Who comes later waits.",
        "which who only looks need not see",
        "the near one is who made it",
        "at most one; who comes later waits",
    ],
)
def test_sentences_without_an_actor_are_found(text: str) -> None:
    assert len(language.words_in(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Who are you?",
        "The client who asks waits.",
        "anywhere",
        "the entry says who changed it: who, from where",
        "which worker",
    ],
)
def test_other_sentences_are_not(text: str) -> None:
    assert language.words_in(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Of all scripts.", True),
        ("As `insert`; yields.", True),
        ("By queue and shard: the jobs.", True),
        ("The names of all scripts.", False),
        ("For each queue the jobs that wait for it.", False),
    ],
)
def test_first_sentences_that_lack_a_verb_are_found(text: str, found: bool) -> None:
    assert _lacks_a_verb(text) == found


def test_the_first_sentence_of_a_docstring_says_what_its_object_is_or_does() -> None:
    assert not [f"{path}: {docstring}" for path, docstring in _docstrings() if _lacks_a_verb(docstring)]


def test_a_docstring_names_what_its_object_is_before_it_says_that_or_those() -> None:
    assert not [
        f"{path}: {docstring}" for path, docstring in _docstrings() if docstring.split()[0] in {"That", "Those"}
    ]


def _docstrings() -> Iterator[tuple[str, str]]:
    """(module, docstring) of each module, class and function of the code."""
    sources = language.REPOSITORY / "src" / "pinlater"
    for path in sources.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node)
                if docstring:
                    yield str(path.relative_to(sources)), docstring


def _lacks_a_verb(docstring: str) -> bool:
    """Whether the first sentence has at most four words and begins with a preposition or a pronoun."""
    words = re.split(r"[.:;?](?:\s|$)", docstring, maxsplit=1)[0].split()
    return 0 < len(words) <= 4 and words[0] in {"Of", "As", "Those", "By", "Without", "It", "Also", "For"}


def _words(path: Path) -> list[str]:
    return sorted(word for _line, text in language.prose(path) for word in language.words_in(text))


def _names(path: Path) -> list[tuple[int, str]]:
    return sorted((line, word) for line, words in language.names(path) for word in language.words_in(words))
