-- The count of rows met must tell whether the slot is still ours, so a renewal always changes something.
UPDATE servers SET seen_at_ms = greatest(seen_at_ms + 1, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED))
WHERE slot = :slot AND incarnation = :incarnation
