"""What Apache's compiler makes of the IDL, as programs of users have it: made once for all tests of this environment.

`from tests.compiled import PinLater, ttypes`. Needs the `thrift` compiler, which `make test` installs.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pinlater.wire.generated.structs import SPECS
from pinlater.wire.names import our_class
from scripts import idl


def _compiled() -> Path:
    """Returns the folder with the package `thrift_libs`."""
    folder = Path(sys.prefix) / "compiled" / hashlib.sha256(idl.IDL.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent))
        command = ["thrift", "-nowarn", "--gen", "py:slots,dynamic", "-out", str(new), str(idl.IDL)]
        subprocess.run(command, check=True)
        try:
            new.rename(folder)
        except OSError:  # another process was quicker
            if not folder.exists():
                raise
    return folder


def __getattr__(name: str) -> Any:
    """Imports a module of the package."""
    if name.startswith("__"):
        raise AttributeError(name)
    folder = os.fspath(_compiled())
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(f"thrift_libs.{name}")


def compiled(value: Any) -> Any:
    """Returns the same struct as an object of the compiler's classes; other values as they are."""
    if isinstance(value, list):
        return [compiled(item) for item in value]
    if isinstance(value, dict):
        return {key: compiled(item) for key, item in value.items()}
    spec = SPECS.get(type(value))
    if spec is None:
        return value
    name = type(value).__name__
    module = __getattr__("PinLater" if name.endswith("_args") else "ttypes")
    name = next(each for each in vars(module) if our_class(each) == name)
    fields = [entry for entry in spec if entry is not None]
    return getattr(module, name)(**{entry[4]: compiled(getattr(value, entry[2])) for entry in fields})
