"""Templates and static files. Everything that a template prints is escaped.

Pages use paths below the root of the console. The path of a proxy is put before the links of a finished page.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from pinlater.console.pages import formats
from pinlater.console.pages.page import bulk_path, job_path, queue_path, with_fields

MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

_OWN_LINK = re.compile(rb'(\s(?:href|src|action|content)="(?:0; url=)?)/')


class StaticFile(NamedTuple):
    """`version`: changes with the content."""

    content: bytes
    media_type: str
    version: str


def static_files() -> dict[str, StaticFile]:
    """Returns all static files by name."""
    found = {}
    for path in files("pinlater.console.pages").joinpath("static").iterdir():
        media_type = MEDIA_TYPES.get(path.name.rpartition(".")[2])
        if media_type:
            content = path.read_bytes()
            found[path.name] = StaticFile(content, media_type, hashlib.sha256(content).hexdigest()[:12])
    return found


def environment(static: dict[str, StaticFile]) -> Environment:
    """The templates with the data that they share: formats as filters, paths as functions."""
    made = Environment(
        loader=PackageLoader("pinlater.console.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        number=formats.number,
        rate=formats.rate,
        share=formats.share,
        span=formats.span,
        latency=formats.latency,
        size=formats.size,
        moment=formats.moment,
        visible=formats.visible,
        shown=formats.shown,
        one_line=formats.one_line,
        last_line=formats.last_line,
    )
    made.globals.update(
        relative=formats.relative,
        queue_path=queue_path,
        bulk_path=bulk_path,
        job_path=job_path,
        with_fields=with_fields,
        static=lambda name: f"/static/{name}?v={static[name].version}",
    )
    return made


def with_links_below(root: str, page: bytes) -> bytes:
    """A page whose links to the console lead below `root`. Everything that a template prints is escaped, so all quotes are the template's
    own."""
    return _OWN_LINK.sub(rb"\1" + root.encode() + b"/", page) if root else page


def rendered(templates: Environment, template: str, **values: Any) -> bytes:
    """A page as bytes."""
    return templates.get_template(template).render(**values).encode()
