-- Jobs are written once. Narrow rows beside them move: ready -> claims -> done.
PRAGMA application_id = 1347179602; -- 'PLTR'

CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- A deleted queue's id is never used again (AUTOINCREMENT), so its remaining rows belong to no queue.
CREATE TABLE queues (
  queue_id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  paused INTEGER NOT NULL DEFAULT 0,
  config TEXT NOT NULL DEFAULT '{}',
  created_at_ms INTEGER NOT NULL
);

-- Deleted queues whose rows are still being freed.
CREATE TABLE dropped_queues (
  queue_id INTEGER PRIMARY KEY
);

-- Waiting jobs at or before (mark_ms, mark_id) are counted as due, those behind it as future.
CREATE TABLE counters (
  queue_id INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  pending INTEGER NOT NULL,
  future INTEGER NOT NULL,
  mark_ms INTEGER NOT NULL,
  mark_id INTEGER NOT NULL,
  in_progress INTEGER NOT NULL,
  succeeded INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  enqueued_total INTEGER NOT NULL,
  claimed_total INTEGER NOT NULL,
  succeeded_total INTEGER NOT NULL,
  failed_total INTEGER NOT NULL,
  retried_total INTEGER NOT NULL,
  PRIMARY KEY (queue_id, priority)
) WITHOUT ROWID;

-- options: JSON of what few jobs have (status, headers, unique, timeout_ms, expires_ms), else NULL. The body comes last, so that
-- nothing that lies behind a large one has to be fetched past it.
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  queue_id INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  run_after_ms INTEGER NOT NULL,
  attempts_allowed INTEGER NOT NULL,
  created_at_ms INTEGER NOT NULL,
  options TEXT,
  body BLOB NOT NULL
);

-- Made at a job's first change; from then on it goes before what the job's own row says.
CREATE TABLE progress (
  id INTEGER PRIMARY KEY,
  attempts_allowed INTEGER NOT NULL,
  attempts_remaining INTEGER NOT NULL,
  attempts_ended INTEGER NOT NULL,
  run_after_ms INTEGER NOT NULL,
  updated_at_ms INTEGER NOT NULL,
  custom_status TEXT NOT NULL,
  error_type TEXT NOT NULL,
  error_text TEXT NOT NULL,
  attempts TEXT NOT NULL,
  body BLOB
);

-- PENDING. changed: 1 where the job has a row in progress.
CREATE TABLE ready (
  queue_id INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  run_after_ms INTEGER NOT NULL,
  id INTEGER NOT NULL,
  changed INTEGER NOT NULL,
  PRIMARY KEY (queue_id, priority, run_after_ms, id)
) WITHOUT ROWID;

-- IN_PROGRESS. flags: 1 has a row in progress, 2 has a unique key that its end frees.
CREATE TABLE claims (
  id INTEGER PRIMARY KEY,
  queue_id INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  claimed_at_ms INTEGER NOT NULL,
  deadline_ms INTEGER NOT NULL,
  timeout_ms INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  token TEXT NOT NULL,
  source TEXT NOT NULL,
  holder TEXT NOT NULL
);
CREATE INDEX claims_by_deadline ON claims (deadline_ms);

-- SUCCEEDED (2) and FAILED (3). holder: who had the job last, or NULL.
CREATE TABLE done (
  id INTEGER PRIMARY KEY,
  queue_id INTEGER NOT NULL,
  state INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  finished_at_ms INTEGER NOT NULL,
  holder TEXT
);
CREATE INDEX done_by_finish ON done (queue_id, state, priority, finished_at_ms);

-- Jobs that expire; a row may outlive its job's wait, the sweep looks.
CREATE TABLE expiries (
  expires_at_ms INTEGER NOT NULL,
  id INTEGER NOT NULL,
  PRIMARY KEY (expires_at_ms, id)
) WITHOUT ROWID;

-- until_ms: set for scope TIME only.
CREATE TABLE unique_keys (
  queue_id INTEGER NOT NULL,
  key TEXT NOT NULL,
  scope INTEGER NOT NULL,
  id INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  until_ms INTEGER,
  PRIMARY KEY (queue_id, key)
) WITHOUT ROWID;
CREATE INDEX unique_keys_by_time ON unique_keys (until_ms) WHERE until_ms IS NOT NULL;

-- answer: the ids that were answered, eight bytes each; existing: JSON, NULL where no job was there already.
CREATE TABLE request_keys (
  queue_id INTEGER NOT NULL,
  key TEXT NOT NULL,
  seen_at_ms INTEGER NOT NULL,
  fingerprint BLOB NOT NULL,
  answer BLOB NOT NULL,
  existing TEXT,
  PRIMARY KEY (queue_id, key)
) WITHOUT ROWID;
CREATE INDEX request_keys_by_time ON request_keys (seen_at_ms);
