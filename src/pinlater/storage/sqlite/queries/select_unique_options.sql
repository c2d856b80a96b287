-- Options of those of the named jobs that have any: for the unique keys to free.
SELECT id, queue_id, options FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND options IS NOT NULL
