-- Frees a key with its job; scope TIME (2) is freed by time alone.
DELETE FROM unique_keys WHERE queue_id = ? AND key = ? AND id = ? AND scope <> 2
