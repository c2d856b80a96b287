"""How long request keys distinguish a repeated enqueue from a new one, and how late a client may repeat, and a server begin, an enqueue.

A store remembers a key for `REQUEST_KEY_KEPT_MS` after it has executed the enqueue. An enqueue that is executed more than that after
its repeat (or the other way round) is stored twice. So each side stays within a share of that time. A client sends no repeat later than
`REPEATED_WITHIN_MS` after the first attempt began. A server begins nothing that waited longer than `BEGUN_WITHIN_MS` in each of three
places: unread in a socket, while the server stood still (`operations.standstill`); from its arrival at the first process that reads it
until a lane begins it (`Enqueue`), which includes its connection, the way from a front process to the store process, and the way to the
server that owns the queue; and before its turn in a database (`storage.request_keys`). The four together, with a margin for the store's
own work, are less than the time that a key is kept.
"""

from __future__ import annotations

REQUEST_KEY_KEPT_MS = 120_000
BEGUN_WITHIN_MS = 20_000
REPEATED_WITHIN_MS = 45_000
