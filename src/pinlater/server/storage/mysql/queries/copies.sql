-- Copies of deleted jobs, for `relational/copies.py`: rows of the history, with a run in the place of the queue.

-- name: save_copies(rows)
INSERT INTO samples (step_s, at_ms, queue, origin, data) VALUES :rows ON DUPLICATE KEY UPDATE data = VALUES(data);
