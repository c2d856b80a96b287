"""Generates `generated/` from `pinlater.thrift`, and says whether what is committed is still what the IDL says.

`python -m pinlater.wire.freshness` compares; `--write` generates anew; `--record` adds what is new in the IDL to
`released_ids.json`, which a release does, and which never takes anything out. A tool for contributors who change the IDL: nothing at run
time imports it. It needs Apache's `thrift` compiler; its version shows in the generated files, so another one counts as a difference.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
IDL = HERE / "pinlater.thrift"
GENERATED = HERE / "generated"
RECORD = HERE / "released_ids.json"
# What a client left out must be told from what it set: the queue's configured default holds then, not the IDL's.
ABSENT_IS_NONE = frozenset({("PinLaterJob", "numAttemptsAllowed")})
_PYTHON_TYPES = {
    "i8": "int",
    "i16": "int",
    "i32": "int",
    "i64": "int",
    "double": "float",
    "string": "str",
    "binary": "bytes",
    "bool": "bool",
}
_SERVICE_STUBS_END = "# HELPER FUNCTIONS AND STRUCTURES"
_SERVICE_STUBS_START = "class Iface(object):"


def compiler() -> str | None:
    """Where the thrift compiler is, or None."""
    return shutil.which("thrift")


def _run_compiler(language: str, into: Path) -> None:
    program = compiler()
    if program is None:
        raise FileNotFoundError("no `thrift` compiler in PATH (Debian: thrift-compiler)")
    subprocess.run([program, "-nowarn", "--gen", language, "-out", str(into), str(IDL)], check=True)  # noqa: S603


def describe() -> dict[str, Any]:
    """The IDL as the compiler understands it."""
    with tempfile.TemporaryDirectory() as folder:
        _run_compiler("json", Path(folder))
        description: dict[str, Any] = json.loads((Path(folder) / "pinlater.json").read_text())
    return description


def _without_stubs(source: str) -> str:
    """A generated service module less its client and processor: our codec and server take their places."""
    start, end = source.index(_SERVICE_STUBS_START), source.index(_SERVICE_STUBS_END)
    return source[:start] + source[end:]


def _required_module(description: dict[str, Any]) -> str:
    lines = [
        '"""Required fields by type, from the IDL: the specs of the Python generator leave them out. Generated, do not edit."""',
        "",
        "REQUIRED: dict[str, tuple[str, ...]] = {",
    ]
    for struct in sorted(description["structs"], key=lambda struct: str(struct["name"])):
        names = tuple(field["name"] for field in struct["fields"] if field["required"] == "required")
        if names:
            lines.append(f'    "{struct["name"]}": {names!r},')
    return "\n".join([*lines, "}", ""])


def _received_module(description: dict[str, Any]) -> str:
    """Classes for incoming structs: cheap to make, typed, and with each field's default if it was not sent."""
    lines = [
        '"""What incoming structs are decoded into. Generated from pinlater.thrift by pinlater.wire.freshness. Do not edit.',
        "",
        "A field that was not sent has its default. Required ones and arguments are never None once they are checked (`wire.checks`).",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Any",
        "",
        "_NOT_SENT: Any = None",
    ]
    for struct in description["structs"]:
        lines += _received_class(str(struct["name"]), struct["fields"])
    for service in description["services"]:
        for function in service["functions"]:
            name = str(function["name"])
            arguments = [field | {"required": "required"} for field in function["arguments"]]
            lines += _received_class(f"{name}_args", arguments)
            returned = {"name": "success", "typeId": function["returnTypeId"], "type": function.get("returnType", {})}
            success = [] if function["returnTypeId"] == "void" else [returned]
            lines += _received_class(
                f"{name}_result", [field | {"required": ""} for field in (*success, *function["exceptions"])]
            )
    return "\n".join([*lines, ""])


def _received_class(name: str, fields: list[dict[str, Any]]) -> list[str]:
    return ["", "", f"class {name}:", *(_received_field(name, field) for field in fields)]


def _received_field(struct: str, field: dict[str, Any]) -> str:
    kind = _python_type(field)
    if field["required"] == "required":
        return f"    {field['name']}: {kind} = _NOT_SENT"
    if "default" not in field or (struct, field["name"]) in ABSENT_IS_NONE:
        return f"    {field['name']}: {kind} | None = None"
    default = {"bool": bool, "float": float}.get(kind, lambda value: value)(field["default"])
    return f"    {field['name']}: {kind} = {default!r}"


def _python_type(described: dict[str, Any], name: str = "type") -> str:
    kind = str(described[f"{name}Id"])
    detail = described.get(name, {})
    if kind in {"list", "set"}:
        return f"{kind}[{_python_type(detail, 'elemType')}]"
    if kind == "map":
        return f"dict[{_python_type(detail, 'keyType')}, {_python_type(detail, 'valueType')}]"
    return str(detail.get("class", _PYTHON_TYPES.get(kind, kind)))


def generate(into: Path) -> None:
    """Writes the generated package into the folder `into`."""
    with tempfile.TemporaryDirectory() as folder:
        _run_compiler("py:slots,dynamic", Path(folder))
        made = Path(folder) / "thrift_libs"
        into.mkdir(parents=True, exist_ok=True)
        for name in ("ttypes.py", "constants.py"):
            (into / name).write_text((made / name).read_text())
        (into / "PinLater.py").write_text(_without_stubs((made / "PinLater.py").read_text()))
    description = describe()
    (into / "required.py").write_text(_required_module(description))
    (into / "received.py").write_text(_received_module(description))
    (into / "__init__.py").write_text('"""Generated from pinlater.thrift by pinlater.wire.freshness. Do not edit."""\n')


def differences() -> list[str]:
    """Names of the committed files that are not what the compiler makes of the IDL today."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        names = {path.name for path in (*fresh.glob("*.py"), *GENERATED.glob("*.py"))}
        return sorted(name for name in names if _text(fresh / name) != _text(GENERATED / name))


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _type_text(described: dict[str, Any], name: str = "type") -> str:
    """The type under `name`, in one line: `list<PinLaterJob>`, `map<string,binary>`."""
    kind = str(described[f"{name}Id"])
    detail = described.get(name, {})
    if kind in {"list", "set"}:
        return f"{kind}<{_type_text(detail, 'elemType')}>"
    if kind == "map":
        return f"map<{_type_text(detail, 'keyType')},{_type_text(detail, 'valueType')}>"
    return str(detail.get("class", kind))


def _field_text(field: dict[str, Any]) -> str:
    requiredness = "" if field["required"] == "req_out" else f"{field['required']} "
    default = f" = {json.dumps(field['default'])}" if "default" in field else ""
    return f"{requiredness}{_type_text(field)} {field['name']}{default}"


def ids_of(description: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All that an old client may rely on: enum values, field ids and types, methods with their arguments."""
    methods: dict[str, Any] = {}
    for service in description["services"]:
        for function in service["functions"]:
            methods[function["name"]] = {
                "returns": _type_text(function, "returnType"),
                "arguments": {str(field["key"]): _field_text(field) for field in function["arguments"]},
                "throws": {str(field["key"]): _field_text(field) for field in function["exceptions"]},
            }
    return {
        "enums": {
            enum["name"]: {str(member["value"]): member["name"] for member in enum["members"]}
            for enum in description["enums"]
        },
        "types": {
            struct["name"]: {str(field["key"]): _field_text(field) for field in struct["fields"]}
            for struct in description["structs"]
        },
        "methods": methods,
    }


def broken_promises(released: dict[str, Any], now: dict[str, Any], path: str = "") -> list[str]:
    """Where `now` no longer says what was released; what is merely new is fine."""
    broken = []
    for key, value in released.items():
        where = f"{path}/{key}"
        if key not in now:
            broken.append(f"{where} is gone")
        elif isinstance(value, dict):
            broken.extend(broken_promises(value, now[key], where))
        elif now[key] != value:
            broken.append(f"{where} was {value!r}, is {now[key]!r}")
    return broken


def _main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m pinlater.wire.freshness", description=__doc__)
    parser.add_argument("--write", action="store_true", help="generate the committed code anew")
    parser.add_argument("--record", action="store_true", help="add what is new in the IDL to released_ids.json")
    chosen = parser.parse_args(arguments)
    if chosen.write:
        generate(GENERATED)
    ids = ids_of(describe())
    broken = broken_promises(json.loads(RECORD.read_text()), ids) if RECORD.exists() else []
    if chosen.record and not broken:
        RECORD.write_text(json.dumps(ids, indent=1, sort_keys=True) + "\n")
    stale = differences()
    for line in [*(f"{name} is not what the IDL says; run with --write" for name in stale), *broken]:
        sys.stderr.write(line + "\n")
    return 1 if stale or broken else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
