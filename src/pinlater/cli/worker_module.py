"""Finds the Worker that an operator names as `MODULE:NAME`."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import typer

from pinlater.cli import exits
from pinlater.worker import Worker


def split_name(application: str) -> tuple[str, str]:
    """`MODULE:NAME` in its two parts. A usage error if it has another form."""
    module_name, colon, name = application.partition(":")
    if not colon or not module_name or not name:
        raise typer.BadParameter(f"{application!r} is not MODULE:NAME", param_hint="MODULE:NAME")
    if module_name.endswith(".py") or "/" in module_name:
        module = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise typer.BadParameter(
            f"{module_name!r} is a file: name its module, {module}:{name}", param_hint="MODULE:NAME"
        )
    return module_name, name


def find_worker(application: str) -> Worker:
    """The Worker that `module:name` means; the current folder is looked in first."""
    module_name, name = split_name(application)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds strings
    try:
        found = getattr(import_module(module_name), name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            exits.fail(f"no module {error.name!r} here or installed", exits.USAGE)
        exits.fail(f"{module_name} can't be loaded: {error}", exits.USAGE)
    except AttributeError:
        exits.fail(f"module {module_name!r} has no {name!r}", exits.USAGE)
    except Exception as error:  # noqa: BLE001 - it is the user's module
        exits.fail(f"{module_name} can't be loaded: {type(error).__name__}: {error}", exits.USAGE)
    if not isinstance(found, Worker):
        exits.fail(f"{application} is no pinlater.Worker but a {type(found).__name__}", exits.USAGE)
    return found
