"""The HTTP side of a server: statistics, health, and pages that other modules add. It knows neither jobs nor stores.

The protocol comes from h11 (MIT, no dependencies, 1.2 MB in memory): a state machine without I/O. Compared with it: aiohttp is well
maintained, too, but brings seven packages, 20 MB and 0.3 s of start-up time to a server that answers a dozen small pages and promises a
small memory; uvicorn with Starlette does not bound how long a client may take over its first request, handles the signals of the process
itself, and would serve only one router. Neither bounds connections as the monitoring port needs it (close the idlest one, so that health
checks get through). The price is our own loop around a connection (`connection`).
"""
