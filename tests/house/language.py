"""Counts forbidden words in the prose of the repository: metaphors, private words, vague actors.

Prose is Markdown, docstrings, comments and the strings of Python, the texts of HTML templates, the comments and strings of JavaScript, and
the comments of other sources. Names in Python, JavaScript and Lua count where they are given: those of files, classes, functions,
arguments, variables and attributes. Other code does not count, nor do fenced blocks and `code spans` in prose. A generated region of a page
counts where its text comes from.

`python -m tests.house.language` prints the counts by word, `--where src` the places, and `--lower` stores lower counts in language.json.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.reference.regions import without_regions

REPOSITORY = Path(__file__).resolve().parents[2]
COUNTS = Path(__file__).with_name("language.json")
# Each area's files; the pages in the root are documentation.
AREAS = {
    "docs": ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "examples", "deploy"),
    "src": ("src", "scripts"),
    "tests": ("tests", "bench"),
}
# What to write instead, and the words that it replaces.
FORBIDDEN = {
    "vague actor": r"who(?:m|so)?ever|(?:any|every|some|no)(?:body|one)s?|no one|so many|what is left|whom",
    "the actor's noun before its verb": r"(?-i:Who)(?= (?![^.?]*\?))",
    "the actor's noun": r"(?:for|to|with|from|by|so that|all|only|then|those|which|that|than|because|since|is) who|(?<=;\s)who",
    "plain order of words": r"so (?:is|are) then|should we|however often",
    "package": r"rooms?|house|workplace|meeting(?! point)",
    "heartbeat": r"heart(?:s)?|ears?|mouth|beats?|signs? of life",
    "background loop": r"(?-i:Beside)",
    "lock file or server row": r"presence",
    "idle or suspended": r"slept",
    "unauthenticated sender": r"strangers?",
    "all waiters": r"herd",
    "kill and reap": r"bur(?:y|ies|ied|ying)",
    "scan": r"walk(?:s|ed|ing)? over",
    "close": r"hears no more|politely",
    "status request": r"how are you",
    "ignore": r"let be",
    "cache or counters": r"books?|ledgers?|tall(?:y|ies)",
    "peers": r"neighbou?rs?",
    "snapshot or watchdog": r"pulses?",
    "deadline": r"patience|patient",
    "index repair": r"vanish(?:es|ed|ing)?|mend(?:s|ed|ing)?",
    "requirements": r"fitness",
    "stop request": r"hurr(?:y|ies|ied)",
    "abandoned": r"left behind",
    "refuse": r"turn(?:s|ed|ing)? away",
    "unexpected error": r"surprises?",
    "unknown outcome": r"doubtful|in doubt",
    "unreachable": r"out of reach",
    "duplicate": r"twins?",
    "the next holder": r"heirs?",
    "contested change": r"rival(?:s|ry|ries)?",
    "server of a test": r"rigs?|farms?",
}
# A name of a file or a module is none of these words, and neither is a part of a longer word.
_ANY = re.compile(rf"(?<![\w./-])(?:{'|'.join(FORBIDDEN.values())})(?![\w/-]|\.\w)".replace(" ", r"\s+"), re.IGNORECASE)
_COMMENT = {
    ".sql": r"--(.*)$",
    ".lua": r"--(.*)$",
    ".toml": r"#(.*)$",
    ".thrift": r"(?://|\*)(.*)$",
    ".service": r"#(.*)$",
    "": r"#(.*)$",
}
# Attributes of tags whose values people read or hear.
_READ = re.compile(
    r"""\b(?:title|aria-label|aria-description|placeholder|alt|content|value|data-\w+)=(?:"([^"]*)"|'([^']*)')"""
)
_STRINGS = r"""\"(?:\\.|[^"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"""
# Where names are given; a group may have several, between commas.
_GIVEN = {
    ".lua": (
        r"\bfunction\s+([\w.:]+)",
        r"\bfunction\b[^(\n]*\(([^)]*)\)",
        r"\blocal\s+(?!function\b)(\w+(?:\s*,\s*\w+)*)",
        r"\bfor\s+(\w+(?:\s*,\s*\w+)*)",
    ),
    ".js": (
        r"\b(?:class|function)\s+(\w+)",
        r"\bfunction\b[^(\n]*\(([^)]*)\)",
        r"\b(?:const|let|var)\s+(\w+|[{\[][^=]*[}\]])",
        r"(\w+)\s*=>",
        r"\(([^()]*)\)\s*=>",
        r"^\s*(?:async\s+)?(\w+)\s*:",
        r"\bthis\.(\w+)\s*=",
    ),
}
# Generated text, and the files that name the words themselves.
_LEFT_OUT = (
    "src/pinlater/wire/generated",
    "docs/_build",
    "tests/house/language.py",
    "tests/house/test_language.py",
)
_MARKER = "<!-- From here on written by"


def found_in(area: str) -> Iterator[tuple[str, int, str]]:
    """(file, line, word) of each forbidden word of the area."""
    for path in _files(AREAS[area]):
        name = str(path.relative_to(REPOSITORY))
        for line, text in (*prose(path), *names(path)):
            for match in _ANY.finditer(text):
                yield name, line + text.count("\n", 0, match.start()), " ".join(match[0].lower().split())


def words_in(text: str) -> list[str]:
    """The forbidden words of a text, in order."""
    return [match[0] for match in _ANY.finditer(text)]


def counts() -> dict[str, int]:
    """The number of forbidden words in each area."""
    return {area: sum(1 for _ in found_in(area)) for area in AREAS}


def stored() -> dict[str, int]:
    """The counts that no change may exceed."""
    return dict(json.loads(COUNTS.read_text()))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, text) of each piece of prose in the file."""
    text = path.read_text(errors="replace")
    if not _ANY.search(text):
        return
    if path.suffix == ".md":
        yield 1, _without_code(_written(text))
    elif path.suffix == ".py":
        yield from ((line, _without_spans(piece)) for line, piece in _python_prose(text))
    elif path.suffix == ".html":
        yield 1, _template_text(text)
    elif path.suffix == ".js":
        for piece in re.finditer(rf"//.*|/\*(?s:.*?)\*/|{_STRINGS}", text):
            yield text.count("\n", 0, piece.start()) + 1, piece[0]
    elif (comment := _COMMENT.get(path.suffix)) is not None:
        for number, line in enumerate(text.splitlines(), 1):
            if match := re.search(comment, line):
                yield number, _without_spans(match[1])


def names(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, words) of each name that the file gives: its own, and those of classes, functions, arguments, variables, attributes."""
    if path.suffix == ".py":
        given = _given(ast.parse(path.read_text()))
    elif path.suffix in _GIVEN:
        given = _given_in_text(path.read_text(), path.suffix)
    else:
        return
    for line, name in ((1, path.stem), *given):
        yield line, " ".join(re.split(r"_+|(?<=[a-z0-9])(?=[A-Z])", name))


def _given(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def _given_in_text(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    comment = r"--.*" if suffix == ".lua" else r"//.*"
    code = re.sub(rf"{comment}|{_STRINGS}", lambda match: "\n" * match[0].count("\n"), text)
    for pattern in _GIVEN[suffix]:
        for match in re.finditer(pattern, code, re.MULTILINE):
            line = code.count("\n", 0, match.start(1)) + 1
            yield from ((line, name) for name in re.findall(r"\w+", match[1]))


def _template_text(template: str) -> str:
    """What people read of a template, line by line: its text, strings of its expressions, some attributes. And its comments."""

    def strings(match: re.Match[str]) -> str:
        found = " ".join(each[1:-1] for each in re.findall(_STRINGS, match[0]))
        return f" {found} " + "\n" * (match[0].count("\n") - found.count("\n"))

    def attributes(match: re.Match[str]) -> str:
        found = " . ".join(double or single for double, single in _READ.findall(match[0]))
        return f" {found} " + "\n" * (match[0].count("\n") - found.count("\n"))

    text = re.sub(r"\{[{%].*?[%}]\}", strings, template, flags=re.DOTALL)
    return re.sub(r"<[^<>]*>", attributes, text)


def _files(places: Iterable[str]) -> Iterator[Path]:
    for place in places:
        path = REPOSITORY / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = str(file.relative_to(REPOSITORY))
            if file.is_file() and not name.startswith(_LEFT_OUT) and "node_modules" not in name and "/var/" not in name:
                yield file


def _written(page: str) -> str:
    """A page without what is generated in it."""
    return without_regions(page.partition(_MARKER)[0])


def _without_code(page: str) -> str:
    """A page with fenced blocks, comments and link targets emptied, line by line, so that line numbers stay."""
    for pattern in (r"^ *```.*?^ *```$", r"<!--.*?-->", r"\]\([^)]*\)"):
        page = re.sub(pattern, lambda m: "\n" * m[0].count("\n"), page, flags=re.DOTALL | re.MULTILINE)
    return _without_spans(page)


def _without_spans(text: str) -> str:
    return re.sub(r"``?[^`\n]*(?:\n[^`\n]+)?``?", lambda match: "\n" * match[0].count("\n"), text)


def _python_prose(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def main(arguments: list[str]) -> int:
    """Prints the counts by word, or the places in an area, or stores lower counts; the exit code."""
    if arguments[:1] == ["--where"]:
        sys.stdout.writelines(f"{file}:{line}: {word}\n" for file, line, word in found_in(arguments[1]))
        return 0
    new = counts()
    if arguments == ["--lower"]:
        lower = {area: min(count, new[area]) for area, count in stored().items()}
        COUNTS.write_text(json.dumps(lower, indent=2) + "\n")
    for area, count in new.items():
        words = Counter(word for _file, _line, word in found_in(area))
        sys.stdout.write(f"{area}: {count} of {stored()[area]}  {dict(words.most_common(12))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
