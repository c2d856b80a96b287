INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', ?)
