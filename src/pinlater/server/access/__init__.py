"""Access control: tokens with roles and patterns of queues, and delays for callers that were refused. Knows no protocol."""
