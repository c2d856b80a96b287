"""How long request keys tell a repeated enqueue from a new one, and how late a client may repeat, and a server begin, an enqueue.

A store remembers a key for `REQUEST_KEY_KEPT_MS` after it has carried the enqueue out. An enqueue that is carried out later than that
after its repeat (or the other way round) is stored twice. So each side stays within a share of that time: a client sends no repeat
later than `REPEATED_WITHIN_MS` after the first try began, and a server begins nothing that lay longer than `BEGUN_WITHIN_MS` in each of
the three places in which an enqueue can lie: its connection (`thrift`), its lane (`sharding`), and the store's turn. The four
together, with a margin for the store's own work, are less than the time that a key is kept.
"""

from __future__ import annotations

REQUEST_KEY_KEPT_MS = 120_000
BEGUN_WITHIN_MS = 20_000
REPEATED_WITHIN_MS = 45_000
