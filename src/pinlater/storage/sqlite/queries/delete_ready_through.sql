-- Exactly the rows that were read: they are the first in the order of the key, and nobody else writes.
DELETE FROM ready WHERE queue_id = ? AND priority = ? AND (run_after_ms, id) <= (?, ?)
