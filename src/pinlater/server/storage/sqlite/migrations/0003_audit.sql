-- Changes and their callers: kept for a time, and at most a number of them. `name` begins with the time.
CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  content BLOB NOT NULL
);
