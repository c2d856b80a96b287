"""The header `Forwarded` of RFC 7239. Values may lack their quotes, as many proxies write them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_PAIR = re.compile(
    r"""[ \t]*(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+)=
        (?:"(?P<quoted>(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*)"|(?P<value>[^\s",;]+))[ \t]*(?P<end>[;,]|$)""",
    re.ASCII | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")


def forwarded(text: str) -> Sequence[Mapping[str, str]]:
    """Returns the values of each proxy, by the name of the parameter in lower case. The proxy nearest to the client is first. Raises
    ValueError.
    """
    proxies: list[dict[str, str]] = [{}]
    at = 0
    while at < len(text):
        found = _PAIR.match(text, at)
        name = found["name"].lower() if found else ""
        if found is None or name in proxies[-1]:
            raise ValueError(f"{text[at : at + 100]!r} does not follow RFC 7239")
        proxies[-1][name] = found["value"] or _ESCAPED.sub(r"\1", found["quoted"] or "")
        at = found.end()
        if found["end"] == ",":
            proxies.append({})
    return [one for one in proxies if one]
