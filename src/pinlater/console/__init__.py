"""The HTTP API and the dashboard in front of PinLater servers: `pinlater console`, a process of its own.

It speaks Thrift to the servers through the asynchronous client, as any other client does, so no HTTP caller can slow a claim inside a
server. The HTTP layer uses Starlette and uvicorn (both BSD-3-Clause). It knows neither stores nor parts of a server. Each endpoint is
declared once, in `endpoints`; the application, the OpenAPI document and the reference page are generated from that. The dashboard (`pages`)
gets its data from these endpoints only.

Everything is bounded: bodies and answers in bytes, connections and long polls in number, and each wait for a client in time.

Weakness: the console decides nothing about rights. It passes the token of a request or session to the servers; without access control
there, every caller may do everything, so the command listens on loopback unless `--insecure` is given.
"""
