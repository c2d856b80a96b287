"""Draws the README's picture, docs/_static/demo.svg, from a real run of `pinlater demo`. `make picture` calls it."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURE = REPOSITORY / "docs/_static/demo.svg"
COLUMNS = 100
# Rich's template fetches a font from elsewhere; the reader's own monospace font will do.
FONT_FACES = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def recorded() -> str:
    """What the demo prints on a terminal until Ctrl-C, with its colours, without what only a live display needs."""
    command = [str(Path(sys.executable).with_name("pinlater")), "demo", "--stay"]
    plain = {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    plain["PYTHONUNBUFFERED"] = "1"
    output = ""
    with subprocess.Popen(command, env=os.environ | plain, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603
        for line in demo.stdout or ():
            output += line
            if "Ctrl-C" in line:
                demo.send_signal(signal.SIGINT)
    if demo.returncode != 0:
        raise SystemExit(f"the demo ended with {demo.returncode}")
    return output


def draw(output: str) -> str:
    """The output as the picture of a terminal."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), ("make demo", "bold")))
    console.print(Text.from_ansi(output.rstrip()))
    picture = console.export_svg(title="PinLater", theme=DIMMED_MONOKAI, unique_id="pinlater")
    picture = FONT_FACES.sub("", picture).replace("Fira Code", "ui-monospace, DejaVu Sans Mono")
    return picture.replace("<svg ", '<svg xml:space="preserve" ', 1) + "\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(recorded()))
    print(PICTURE.relative_to(REPOSITORY))
