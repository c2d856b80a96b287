"""The list of the features. No other module outside of their folders names one."""

from __future__ import annotations

from collections.abc import Mapping

from pinlater.server.features.audit import methods as audit
from pinlater.server.features.bulk import methods as bulk
from pinlater.server.features.explain import methods as explain
from pinlater.server.features.failures import methods as failures
from pinlater.server.features.history import methods as history
from pinlater.server.features.status import methods as status
from pinlater.server.features.workers import methods as workers
from pinlater.server.thrift.methods import changing, jobs, looking, queues
from pinlater.server.thrift.methods.record import ServedMethod

_SUBJECTS = (jobs, looking, changing, queues, status, workers, explain, failures, bulk, history, audit)
METHODS: Mapping[str, ServedMethod] = {served.name: served for subject in _SUBJECTS for served in subject.METHODS}
"""The record of each method, by its name in the IDL."""
