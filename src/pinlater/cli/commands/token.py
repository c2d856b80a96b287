"""`pinlater token ...`: makes, lists, limits and revokes the tokens of callers. Changes the file of tokens only, with a note of
its user for the audit; servers read both within a second. Asks no server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pinlater.cli import exits, notes, options, output
from pinlater.cli.call import CommandReply
from pinlater.cli.local_user import local_author
from pinlater.cli.quotas import QuotaOptions, quota_json, shown_quota
from pinlater.cli.server_settings import ConfigFile, load_settings
from pinlater.domain.access import ALL_QUEUES, MEANINGS, Role, check_pattern, digest_of, new_secret
from pinlater.domain.clock import SystemClock
from pinlater.server.access.last_use import read_last_uses
from pinlater.server.access.quotas import OwnQuota
from pinlater.server.access.tokens import Token, change_tokens, check_name, parse_tokens
from pinlater.server.config.file_authors import note_author

_NAMED_MAX = 10
Name = Annotated[str, typer.Argument(metavar="NAME", help="What lists, logs and refusals call the token.")]
TokensFile = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="FILE", help="File of the tokens. Default: the setting access.tokens_file."),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", metavar="PATTERN", help="Queues that it is for: mail, mail*, ... May be repeated. Default: all."
    ),
]


def create(
    reply: CommandReply,
    name: Name,
    role: Annotated[
        list[Role],
        typer.Option(
            metavar="ROLE",
            help=f"What the token allows: {', '.join(role.value for role in MEANINGS)}. May be repeated.",
        ),
    ],
    queue: Queues = None,
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long it is good: 90d, 12h. Default: until revoked.")
    ] = None,
    *,
    bounds: QuotaOptions,
    speaks_for_others: Annotated[
        bool,
        typer.Option(
            "--speaks-for-others",
            help="The audit names the user that the holder says it speaks for: for a console behind a proxy that authenticates people.",
        ),
    ] = False,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the secret to this new file, which only you can read, and do not print it.",
        ),
    ] = None,
    tokens: TokensFile = None,
    config: ConfigFile = None,
) -> None:
    """Create a token and print its secret, or write it to --output. It is shown this once: the file of the tokens keeps its SHA-256 only.

    Example: pinlater token create billing --role produce --queue 'mail*' --tokens tokens.json --output billing.token
    """
    path, secret, now_ms = _file(tokens, config), new_secret(), SystemClock().now_ms()
    span_ms = options.span_ms(expires, "--expires")
    quota = bounds.change(OwnQuota())
    try:
        token = Token(
            check_name(name),
            digest_of(secret),
            tuple(dict.fromkeys(role)),
            tuple(check_pattern(pattern) for pattern in dict.fromkeys(queue or [ALL_QUEUES])),
            now_ms,
            None if span_ms is None else now_ms + span_ms,
            quota,
            speaks_for_others,
        )
    except ValueError as error:
        exits.fail(str(error), exits.USAGE)
    if output_file is None:
        output.check_open("no token was made")
    with _written(secret, output_file):
        _change(path, name, lambda known: _with(known, token, path))
    about = _as_json(token, None, now_ms)
    if output_file is None:
        _answer_secret(reply, secret, token, path, about)
    else:
        told = f"token {name} is in {path}, and its secret in {output_file}"
        reply.answer({"output": str(output_file), **about}, [told])


def list_tokens(reply: CommandReply, tokens: TokensFile = None, config: ConfigFile = None) -> None:
    """List the tokens, and when each was last used. Servers on this machine note the use, to the minute: `unknown` if none has noted any.

    Example: pinlater token list --tokens tokens.json
    """
    path, now_ms = _file(tokens, config), SystemClock().now_ms()
    known, used = _read(path), read_last_uses(path)
    columns: output.Columns[Token] = {
        "name": lambda token: token.name,
        "roles": lambda token: ", ".join(role.value for role in token.roles),
        "queues": lambda token: ", ".join(token.queues),
        "quota": lambda token: shown_quota(token.quota),
        "created": lambda token: output.iso(token.created_at_ms),
        "expires": lambda token: "expired" if token.has_expired(now_ms) else output.iso(token.expires_at_ms),
        "last used": lambda token: "unknown" if used is None else output.iso(used.get(token.digest)),
    }
    listed = [_as_json(token, (used or {}).get(token.digest), now_ms) for token in known]
    reply.answer({"tokens": listed, "last_use_known": used is not None}, lambda: output.print_blocks(columns, known))


def limit(
    reply: CommandReply,
    name: Name,
    bounds: QuotaOptions,
    tokens: TokensFile = None,
    config: ConfigFile = None,
) -> None:
    """Change the quota of a token. What is not given stays. Servers apply it within a second, and end nothing that is under way.

    Example: pinlater token limit billing --max-polls 200 --max-bytes-in-flight 64MiB --tokens tokens.json
    """
    if bounds == QuotaOptions():
        raise typer.BadParameter("give at least one of --max-connections, --max-polls and --max-bytes-in-flight")
    bounds.change(OwnQuota())  # before the file is looked at
    path, changed = _file(tokens, config), list[Token]()

    def change(known: tuple[Token, ...]) -> list[Token]:
        index = _index_of(known, name, path)
        changed.append(known[index]._replace(quota=bounds.change(known[index].quota)))
        return [*known[:index], *changed, *known[index + 1 :]]

    _change(path, name, change)
    quota = changed[0].quota
    told = f"quota of {name}: {shown_quota(quota)}"
    reply.answer({"name": name, **quota_json(quota)}, lambda: output.print_lines([told]))


def revoke(reply: CommandReply, name: Name, tokens: TokensFile = None, config: ConfigFile = None) -> None:
    """Remove a token. Servers refuse it within a second, also on open connections.

    Example: pinlater token revoke billing --tokens tokens.json
    """
    path = _file(tokens, config)
    _change(path, name, lambda known: _without(known, name, path))
    reply.answer({"revoked": name}, [f"revoked {name}"])


def _answer_secret(reply: CommandReply, secret: str, token: Token, path: Path, about: Mapping[str, object]) -> None:
    """Prints the secret of a new token; a token whose secret can't be printed is removed."""
    try:
        if output.on_terminal() and not reply.json:
            notes.write(f"token {token.name} is in {path}; this is its secret, which is not shown again:")
        reply.answer({"token": secret, **about}, [secret])
        output.deliver()
    except OSError as error:
        _change(path, token.name, lambda known: _without(known, token.name, path))
        output.fail_unprinted(error, "no token was made")


@contextmanager
def _written(secret: str, path: Path | None) -> Iterator[None]:
    """Keeps the secret in a new file that only its owner can read, or nowhere for None. If what follows fails, there is no file. A file
    that exists stays as it is, and ends the command, as does one that can't be written.
    """
    if path is None:
        yield
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        exits.fail(f"{path} exists already and is not overwritten; no token was made", exits.REFUSED)
    except OSError as error:
        exits.fail(f"{path} can't be written: {error.strerror or error}; no token was made", exits.REFUSED)
    try:
        try:
            with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
                file.write(f"{secret}\n")
                file.flush()
                os.fsync(descriptor)
        except OSError as error:
            exits.fail(f"{path} can't be written: {error.strerror or error}; no token was made", exits.REFUSED)
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _file(tokens: Path | None, config: Path | None) -> Path:
    """The file that `--tokens` or the settings name."""
    if tokens is not None:
        return tokens
    path = load_settings(config, None, {}, driver_needed=False, tokens_needed=False).settings.access.tokens_file
    if path is None:
        raise typer.BadParameter(
            "which file? Give it here, or set access.tokens_file (PINLATER_ACCESS_TOKENS_FILE)", param_hint="--tokens"
        )
    return path


def _with(known: tuple[Token, ...], token: Token, path: Path) -> list[Token]:
    if any(other.name == token.name for other in known):
        exits.fail(f"{path} has a token {token.name} already: revoke it first, or choose another name", exits.REFUSED)
    return [*known, token]


def _without(known: tuple[Token, ...], name: str, path: Path) -> list[Token]:
    index = _index_of(known, name, path)
    return [*known[:index], *known[index + 1 :]]


def _index_of(known: tuple[Token, ...], name: str, path: Path) -> int:
    names = [token.name for token in known]
    if name not in names:
        _fail_without_token(path, name, names)
    return names.index(name)


def _fail_without_token(path: Path, name: str, names: list[str]) -> NoReturn:
    if not path.exists():
        _fail_without_file(path)
    more = f" and {len(names) - _NAMED_MAX:,} others" if len(names) > _NAMED_MAX else ""
    there = f"it has {', '.join(names[:_NAMED_MAX])}{more}" if names else "it has none"
    exits.fail(f"{path} has no token {name}; {there}", exits.REFUSED)


def _fail_without_file(path: Path) -> NoReturn:
    exits.fail(f"{path} does not exist: `pinlater token create` makes it, with the first token", exits.REFUSED)


def _change(path: Path, name: str, change: Callable[[tuple[Token, ...]], list[Token]]) -> None:
    try:
        change_tokens(path, change, partial(note_author, path, [name], local_author()))
    except ValueError as error:
        exits.fail(f"{path} is broken: {error}", exits.REFUSED)
    except OSError as error:
        why = error.strerror or error if path.parent.is_dir() else f"there is no folder {path.parent}"
        exits.fail(f"{path} can't be changed: {why}", exits.REFUSED)


def _read(path: Path) -> tuple[Token, ...]:
    try:
        return parse_tokens(path.read_bytes())
    except FileNotFoundError:
        _fail_without_file(path)
    except ValueError as error:
        exits.fail(f"{path} is broken: {error}", exits.REFUSED)
    except OSError as error:
        exits.fail(f"{path} can't be read: {error.strerror or error}", exits.REFUSED)


def _as_json(token: Token, used_at_ms: int | None, now_ms: int) -> dict[str, object]:
    return {
        "name": token.name,
        "roles": [role.value for role in token.roles],
        "queues": list(token.queues),
        "created_at_ms": token.created_at_ms,
        "expires_at_ms": token.expires_at_ms,
        **quota_json(token.quota),
        "speaks_for_others": token.speaks_for_others,
        "expired": token.has_expired(now_ms),
        "last_used_at_ms": used_at_ms,
    }
