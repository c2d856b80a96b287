"""Sphinx settings. `make docs` builds with warnings as errors; nothing is fetched from outside."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from pinlater.version import __version__

project = "PinLater"
author = "The PinLater authors"
project_copyright = author
release = __version__
version = ".".join(__version__.split(".")[:2])

extensions = ["myst_parser", "plain_contents", "generated_parts"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext"]

html_theme = "furo"
html_title = f"PinLater {release}"
html_static_path = ["_static"]
html_copy_source = False
html_show_sphinx = False
nitpicky = True
