"""Access control: tokens with roles and patterns of queues, and what slows down callers who are refused. Knows no protocol."""
