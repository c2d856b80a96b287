"""The Thrift listener: sockets, connections, and the way from a decoded call to an operation and back. No business logic.

Way in: `connection` (bytes to frames, one request after the other) → `answering` (frame to reply) → `handlers` (which operation)
→ `requests` (wire to values) → the service → `answers` (values to wire), or `failures` (errors to wire).
"""
