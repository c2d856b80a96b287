REPLACE INTO servers (slot, incarnation, name, address, started_at_ms, seen_at_ms)
VALUES (:slot, :incarnation, :name, :address, :now_ms, :seen_at_ms)
