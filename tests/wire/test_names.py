"""The names in the IDL can be used in all languages that Apache Thrift generates code for."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.idl import IDL, compiler, describe

WORDS = Path(__file__).with_name("reserved_words.txt")
# Reserved words that are harmless in that language: its generator writes them in another form, or they are properties and keys
# there, which may have any name.
HARMLESS = {("body", "D"), ("version", "D"), ("library", "Delphi"), ("arguments", "JavaScript"), ("state", "Perl")}
# Languages in which letters of another case make no other word.
CASELESS = {"Delphi", "PHP"}


def reserved_words() -> dict[str, set[str]]:
    """The words by language."""
    lines = [line for line in WORDS.read_text().splitlines() if not line.startswith("#")]
    entries = "\n".join(lines).replace("\n  ", " ").splitlines()
    return {language: set(words.split()) for language, _, words in (entry.partition(": ") for entry in entries)}


def names(described: Any) -> Iterator[str]:
    """All names of structs, fields, values, methods and arguments."""
    if isinstance(described, dict):
        if isinstance(described.get("name"), str):
            yield described["name"]
        described = list(described.values())
    if isinstance(described, list):
        for one in described:
            yield from names(one)


@pytest.fixture(scope="module")
def idl() -> dict[str, Any]:
    if compiler() is None:
        pytest.skip("there is no Thrift compiler here")
    return describe()


def test_no_name_is_a_reserved_word_of_a_language(idl: dict[str, Any]) -> None:
    reserved = reserved_words()
    assert len(reserved) > 18
    found = set()
    for name in names(idl):
        for language, words in reserved.items():
            if name in words or (language in CASELESS and name.lower() in {word.lower() for word in words}):
                found.add((name, language))
    assert found == HARMLESS


def test_no_argument_is_called_context(idl: dict[str, Any]) -> None:
    """thrift-typescript adds a parameter of that name to each method."""
    arguments = [
        one["name"] for service in idl["services"] for method in service["functions"] for one in method["arguments"]
    ]
    assert "requestContext" in arguments
    assert "context" not in arguments


def test_the_code_that_is_generated_for_lua_loads(tmp_path: Path) -> None:
    """Its generator takes names as they are."""
    lua = shutil.which("lua5.2")
    program = compiler()
    if lua is None or program is None:
        pytest.skip("there is no Lua or no Thrift compiler here")
    subprocess.run([program, "-nowarn", "--gen", "lua", "-out", tmp_path, IDL], check=True)
    for made in tmp_path.iterdir():
        script = f"local code, why = loadfile('{made}'); print(why or 'loads'); os.exit(code and 0 or 1)"
        loaded = subprocess.run([lua, "-e", script], capture_output=True, text=True, check=False)
        assert loaded.stdout == "loads\n"
