"""Secrets are compared by digests, or in a time that does not depend on them: `==` ends at the first character that differs.

A secret is known by its name: one of `_WORDS`, or a name that ends with one. Names of constants are none. The tokens of claims are no
secrets of callers: they tell one claim of a job from another.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path("src/pinlater")

_WORDS = ("token", "secret", "password", "session_id", "signature", "proof", "cookie")
_COMPARISONS = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_METHODS = ("startswith", "endswith", "index", "find", "count", "__eq__")

CLAIM_TOKENS = {
    "server/storage/redis/finishing.py",
    "server/storage/outcomes.py",
    "server/storage/relational/plain_acks.py",
    "server/storage/relational/in_hand.py",
    "simulation/history.py",
    "simulation/store_session.py",
}
"""Files in which `token` is the token of a claim."""
OF_THE_SIMULATOR = {"simulation/cluster.py"}
"""Files with the password of simulated servers."""


def comparisons_in(source: str) -> Iterator[int]:
    """The lines that compare a secret with another value than a constant."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            left = node.left
            for operator, right in zip(node.ops, node.comparators, strict=True):
                if isinstance(operator, _COMPARISONS) and _compares_secret(operator, left, right):
                    yield node.lineno
                left = right
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and _calls_on_secret(node.func, node.args)
        ):
            yield node.lineno


def _calls_on_secret(called: ast.Attribute, arguments: list[ast.expr]) -> bool:
    constant = any(isinstance(each, ast.Constant) for each in arguments)
    return called.attr in _METHODS and not constant and any(map(_is_secret, (called.value, *arguments)))


def _compares_secret(operator: ast.cmpop, left: ast.expr, right: ast.expr) -> bool:
    if isinstance(operator, ast.In | ast.NotIn):
        return _is_secret(left) and not isinstance(right, ast.Constant)
    if isinstance(left, ast.Constant) or isinstance(right, ast.Constant):
        return False
    return _is_secret(left) or _is_secret(right)


def _is_secret(node: ast.expr) -> bool:
    """Whether the value is called as secrets are, at any place of it that is no call: a digest of a secret is none."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.endswith(_WORDS)
        case ast.Subscript(value=value) | ast.Await(value=value) | ast.NamedExpr(value=value):
            return _is_secret(value)
        case ast.Call(func=ast.Attribute(value=value, attr="encode" | "decode" | "strip" | "lower")):
            return _is_secret(value)
        case ast.Tuple(elts=values) | ast.List(elts=values):
            return any(map(_is_secret, values))
    return False


def test_no_secret_is_compared_in_a_time_that_depends_on_it() -> None:
    found = [
        f"{path}:{line}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES).as_posix() not in CLAIM_TOKENS | OF_THE_SIMULATOR and "generated" not in path.parts
        for line in comparisons_in(path.read_text())
    ]
    assert found == [], "compare SHA-256 digests, or use hmac.compare_digest"


def test_files_with_tokens_of_claims_still_compare_some() -> None:
    for name in CLAIM_TOKENS:
        assert list(comparisons_in((SOURCES / name).read_text())) != [], name


def test_comparisons_of_secrets_are_found_and_others_are_not() -> None:
    source = """
given == self._secret
known = [one for one in sessions if one.token == token]
auth_token in tokens
(name, password) != (other, given)
form_token.encode() == given
given.startswith(secret)
token == "" or token is None
digest_of(secret) == digest
compare_digest(secret, given)
token.partition(":")
secret.startswith("x")
len(secret) <= 512
tokens == before
"""
    assert sorted(comparisons_in(source)) == [2, 3, 4, 5, 6, 7]
