-- The highest id of a job that is there, and the highest one that is kept because the job that had it may be gone.
SELECT coalesce((SELECT max(id) FROM jobs), 0), coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'highest_id'), 0)
