"""Puts the explanation of waiting jobs into a server."""

from __future__ import annotations

from pinlater.server.features.explain.explain import Explain
from pinlater.server.features.explain.methods import METHODS
from pinlater.server.features.feature import Feature
from pinlater.server.front.operations import Forwarded
from pinlater.server.operations.service import Service


def _add(service: Service) -> None:
    service.put(Explain(service))


FEATURE = Feature(METHODS, _add, Forwarded(Explain, looks=("explain",)))
