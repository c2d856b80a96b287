"""The words by which programs tell errors apart are in the protocol's page: it is the one list of them."""

from __future__ import annotations

import re

from tests.house.conftest import REPOSITORY

_DETAIL = re.compile(r'\bdetail\s*=\s*"([A-Z_]+)"(?: if \w+ else "([A-Z_]+)")?')
# No answer has them: they stop a server's start, or a command at its store.
NOT_ANSWERED = {"BACKUP_REFUSED", "SCHEMA_REFUSED", "STORE_IN_USE"}


def test_the_protocol_page_lists_every_detail_that_a_server_answers_with() -> None:
    source = REPOSITORY / "src" / "pinlater"
    files = [source / "domain" / "errors.py", *(source / "server").rglob("*.py")]
    details = {word for file in files for match in _DETAIL.findall(file.read_text()) for word in match if word}
    listed = set(re.findall(r"[A-Z_]+", (REPOSITORY / "docs/reference/protocol.md").read_text()))
    assert details - listed - NOT_ANSWERED == set()
    assert len(details) > 30
