"""Whatever stands in a source: settings come out, or our one error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.config.errors import SettingsError
from pinlater.server.config.load import load
from pinlater.server.config.original import known_names, read_original
from pinlater.server.config.schema import keys
from pinlater.server.config.toml_file import read_toml

TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["9" * 39, "9" * 400, "-0", "1e999", "nan", "inf", "٣", "1_0", "~nobody-here/x", "5 s", "1.5 ms", "\0"]
    ),
)


def settings_or_problems(**sources: object) -> None:
    """Any other exception fails the test."""
    try:
        loaded = load(**sources)  # type: ignore[arg-type]
    except SettingsError as error:
        assert error.problems  # noqa: PT017 (either outcome is right)
    else:
        assert set(loaded.origins) == set(keys())


@given(st.sampled_from(sorted(keys())), TEXTS)
def test_any_text_in_any_variable(path: str, text: str) -> None:
    settings_or_problems(env={keys()[path].variable: text})


@given(
    st.sampled_from(sorted(keys())),
    st.one_of(
        TEXTS, st.integers(), st.floats(), st.booleans(), st.lists(st.integers()), st.dictionaries(st.text(), st.text())
    ),
)
def test_any_value_in_any_flag(path: str, value: object) -> None:
    settings_or_problems(flags={path: value})


@given(st.text())
def test_any_text_as_a_toml_file(text: str) -> None:
    source = read_toml(Path("pinlater.toml"), text)
    assert source.problems or set(source.given) <= set(keys())


@given(st.lists(st.tuples(st.one_of(st.sampled_from(sorted(known_names())), st.text(max_size=10)), TEXTS), max_size=8))
def test_any_text_as_a_properties_file(entries: list[tuple[str, str]]) -> None:
    source = read_original(Path("pinlater.properties"), "\n".join(f"{key}={value}" for key, value in entries))
    assert set(source.given) <= set(keys())


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "{a=" * 10_000, "[" + "a." * 10_000 + "a]"])
def test_deep_nesting_is_a_problem_and_no_crash(text: str) -> None:
    assert read_toml(Path("pinlater.toml"), text).problems
