-- Handing out due jobs: from `ready` to `claims`.

-- name: insert_claims(id, queue_id, priority, claimed_at_ms, deadline_ms, timeout_ms, flags, token, source, holder)
INSERT INTO claims (id, queue_id, priority, claimed_at_ms, deadline_ms, timeout_ms, flags, token, source, holder)
VALUES :rows;
