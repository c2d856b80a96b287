-- Of (queue, key) pairs those that are known: one look-up of the primary key for each.
SELECT known.queue_id, known.key, known.seen_at_ms, known.fingerprint, known.answer, known.existing
FROM (VALUES (?, ?)) AS wanted
CROSS JOIN request_keys AS known
WHERE known.queue_id = wanted.column1 AND known.key = wanted.column2
