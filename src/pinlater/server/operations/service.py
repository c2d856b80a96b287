"""The service: the operations of a caller on jobs and queues, put together. Transports call them; it knows no transport."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pinlater.domain.clock import Clock
from pinlater.domain.queue import Rates
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.dispatch.identity import Identity
from pinlater.server.operations.body_limit import BodyLimit
from pinlater.server.operations.body_search import SearchProcesses
from pinlater.server.operations.bulk import Bulk
from pinlater.server.operations.claim_events import ClaimEvents
from pinlater.server.operations.claimed_jobs import ClaimedJobs
from pinlater.server.operations.dequeue import Dequeue
from pinlater.server.operations.enqueue import Enqueue
from pinlater.server.operations.job_queries import JobQueries
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.operations.order_homes import OrderHomes
from pinlater.server.operations.parts import Parts
from pinlater.server.operations.passwords import PasswordCheck
from pinlater.server.operations.queue_cache import QueueCache
from pinlater.server.operations.queues import Queues
from pinlater.server.operations.settings_in_force import QueueSettings
from pinlater.server.operations.standstill import Standstill
from pinlater.server.sharding.shards import Shards
from pinlater.server.telemetry.metrics import Metrics


class Service(Parts):
    """One object for each group of operations. A transport calls them by group: `service.enqueuing.enqueue(...)`. It finds those of
    features by their class: `service.of(Explain).explain(...)`.

    Every operation raises `PinLaterError` for an answer other than success. `features`: the names of abilities that the server reports to
    clients.
    """

    def __init__(
        self,
        shards: Shards,
        dispatcher: Dispatcher,
        passwords: PasswordCheck,
        identity: Identity,
        metrics: Metrics,
        clock: Clock,
        settings: JobSettings,
        rates: Callable[[str], Rates],
        standstill: Standstill,
        features: Sequence[str],
    ) -> None:
        super().__init__(metrics, clock, shards.random)
        self.shards = shards
        self.dispatcher = dispatcher
        self.passwords = passwords
        self.identity = identity
        self.settings = settings
        self.features = features
        self.rates = rates
        self.standstill = standstill
        self.queue_cache = QueueCache(shards, dispatcher, clock, settings.max_queues)
        self.order_homes = OrderHomes(shards, self.queue_cache, clock)
        self.body_limit = BodyLimit(shards, settings.max_body_bytes)
        self.searches = SearchProcesses(settings.regex_processes_max, settings.regex_steps_in_flight_max)

        # Each uses the parts that the service has by then.
        self.queues = Queues(self)
        self.queue_settings = QueueSettings(self)
        self.enqueuing = Enqueue(self)
        self.claimed_jobs = ClaimedJobs(self)
        self.dequeuing = Dequeue(self)
        self.job_queries = JobQueries(self)
        self.bulk = Bulk(self)

    def hear_claims(self, events: ClaimEvents) -> None:
        """Reports calls about claims to `events`."""
        self.claimed_jobs.events = self.dequeuing.events = events

    async def close(self) -> None:
        """Closes the features, and ends the search processes. The shards are not closed, since it does not own them."""
        await super().close()
        await self.searches.close()
