"""Checks objects against the schemas of Kubernetes and of KEDA's kinds. Fields that these do not name are refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate
import pytest
import yaml

from tests.kubernetes.helm import TOOLS, KubernetesObject

_KEDA = "keda.sh/v1alpha1"


def check(each: KubernetesObject, version: str) -> None:
    """Raises a ValidationError of jsonschema."""
    if each["apiVersion"] == _KEDA:
        jsonschema.validate(each, _schema_of_keda(each["kind"]))
    else:
        kubernetes_validate.validate(each, version, strict=True)


@cache
def _schema_of_keda(kind: str) -> dict[str, Any]:
    folders = sorted(TOOLS.glob("keda-[0-9]*"))
    if not folders:
        pytest.skip("no definitions of KEDA's kinds: scripts/kubernetes-tools fetches them with Go")
    definition = yaml.safe_load((folders[-1] / f"keda.sh_{kind.lower()}s.yaml").read_text())
    [version] = definition["spec"]["versions"]
    schema: dict[str, Any] = _strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # the API server knows its fields
    return schema


def _strict(schema: Any) -> Any:
    """The same schema, that refuses unknown fields of objects whose fields it names."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    within = {key: _strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        within.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        within.pop("type", None)
    return within
