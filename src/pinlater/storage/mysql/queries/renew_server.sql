-- The count of rows met must tell whether the slot is still ours, so a renewal always changes something. Where the database's clock went
-- back the row follows: from the future it would count as nobody's.
UPDATE servers
SET seen_at_ms = CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + (seen_at_ms = CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED))
WHERE slot = :slot AND incarnation = :incarnation
