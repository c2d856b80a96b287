INSERT IGNORE INTO expiries (expires_at_ms, id) VALUES :rows
