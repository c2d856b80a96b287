"""Operations through a front process do what they do in a server alone: the tests of the service, over a connection."""

from __future__ import annotations

from tests.service.test_enqueue import *  # noqa: F403 the tests are to be found here
from tests.service.test_job_queries import *  # noqa: F403
from tests.service.test_settings_in_force import *  # noqa: F403
