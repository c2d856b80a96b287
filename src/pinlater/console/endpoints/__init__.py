"""The endpoints of the HTTP API by subject: for each its function, and the shapes of its request and its answer.

The bounds, the OpenAPI document and the reference page follow from these declarations. Times are milliseconds since the epoch in fields
that end in `_at_ms`, `_after_ms` or `_since_ms`, and in `now_ms`. Spans are milliseconds in the others that end in `_ms`. The bounds here
keep values within the wire's types; servers check the narrower bounds of their settings. A request with an unknown field is refused, so
that a misspelt option is no silent default.
"""
