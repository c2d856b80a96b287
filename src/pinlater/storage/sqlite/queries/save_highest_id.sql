INSERT OR REPLACE INTO meta (key, value) VALUES ('highest_id', ?)
