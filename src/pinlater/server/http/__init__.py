"""The HTTP side of a server: statistics, health, and pages that other modules add. Knows no job and no store.

The protocol comes from h11 (MIT, no dependencies, 1.2 MB in memory): a state machine without I/O. Compared with it: aiohttp
is well maintained, too, but brings seven packages, 20 MB and 0.3 s of start to a server that answers a dozen small pages and whose memory
is promised to be small; uvicorn with Starlette has no bound on how long a client may take over its first request,
handles the signals of the process itself, and would serve one router. Neither bounds connections as the monitoring port
needs it (close the idlest, so that health checks get through). The cost is our own loop around
a connection (`connection`).
"""
