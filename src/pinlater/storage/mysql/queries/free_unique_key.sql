-- Frees a key with its job; scope TIME (2) is freed by time alone.
DELETE FROM unique_keys WHERE queue_id = :queue_id AND unique_key = :key AND id = :id AND scope <> 2
