"""The Thrift listener: sockets, connections, and the way from a decoded call to an operation and back. No business logic.

Way in: `connection` (bytes to frames, one request after the other) → `answering` (frame to reply) → `methods` (a record a method, whose
handler makes values of the wire's structs and calls the service) or `failures` (errors to wire). `guard` checks callers first.
"""
