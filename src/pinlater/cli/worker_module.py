"""Finds the Worker that an operator names as `MODULE:NAME`."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import typer

from pinlater.cli import exits
from pinlater.extras import install_line
from pinlater.worker import Worker

# Those of the extras that a worker's program imports.
_EXTRAS = {"opentelemetry": "otel"}


def split_name(application: str) -> tuple[str, str]:
    """Returns the two parts of `MODULE:NAME`. Another form is a usage error."""
    module_name, colon, name = application.partition(":")
    if not colon or not module_name or not name:
        module = module_name.removesuffix(".py") or "tasks"
        raise typer.BadParameter(
            f"{application!r} is not MODULE:NAME, such as {module}:{name or 'worker'}", param_hint="MODULE:NAME"
        )
    if module_name.endswith(".py") or "/" in module_name:
        module = module_name.removesuffix(".py").strip("./").replace("/", ".")
        if ".." in Path(module_name).parts or Path(module_name).is_absolute():
            raise typer.BadParameter(
                f"{module_name!r} is in another folder: go there and name its module, {Path(module_name).stem}:{name}",
                param_hint="MODULE:NAME",
            )
        raise typer.BadParameter(
            f"{module_name!r} is a file: name its module, {module}:{name}", param_hint="MODULE:NAME"
        )
    return module_name, name


def find_worker(application: str) -> Worker:
    """Returns the Worker that `module:name` names. Searches the current folder first."""
    module_name, name = split_name(application)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds strings
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            exits.fail(f"no module {error.name!r} here or installed", exits.USAGE)
        _fail_to_load(module_name, error, str(error), _install_line(error.name or ""))
    except Exception as error:  # noqa: BLE001 - it is the user's module
        _fail_to_load(module_name, error, f"{type(error).__name__}: {error}")
    workers = [f"{module_name}:{each}" for each, value in vars(module).items() if isinstance(value, Worker)]
    there = f"; there is {' and '.join(workers)}" if workers else f"; {module_name} has no pinlater.Worker"
    if not hasattr(module, name):
        exits.fail(f"module {module_name!r} has no {name!r}{there}", exits.USAGE)
    found = getattr(module, name)
    if not isinstance(found, Worker):
        exits.fail(f"{application} is of type {type(found).__name__}, not a pinlater.Worker{there}", exits.USAGE)
    return found


def _fail_to_load(module_name: str, error: Exception, said: str, hint: str = "") -> NoReturn:
    """Reports what went wrong and where; with `--traceback` the traceback first."""
    exits.show_traceback(error)
    exits.fail(f"{module_name} can't be loaded: {said}{_place(error)}{hint}", exits.USAGE)


def _install_line(missing: str) -> str:
    """Returns `: pip install ...` for a module that one of our extras installs; '' for others."""
    extra = _EXTRAS.get(missing)
    return f": {install_line(extra)}" if extra else ""


def _place(error: Exception) -> str:
    """The last line of the user's own code that ran, as ` (mails.py, line 39)`; '' for a SyntaxError, which contains it."""
    if isinstance(error, SyntaxError):
        return ""
    here = Path.cwd()
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(here) and "site-packages" not in frame.filename
    ]
    return f" ({Path(own[-1].filename).relative_to(here)}, line {own[-1].lineno})" if own else ""
