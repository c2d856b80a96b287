PRAGMA application_id = 1347179602;
BEGIN TRANSACTION;
CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  content BLOB NOT NULL
);
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
INSERT INTO "claims" VALUES(4,1,1,1767225600001,1767225660002,60000,1,'token','worker','host:9010:0:worker:1');
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
INSERT INTO "counters" VALUES(1,1,1,1,1767225600003,9223372036854775807,1,1,1,4,4,1,1,1);
INSERT INTO "counters" VALUES(1,2,2,1,1767225600000,9223372036854775807,0,0,0,2,0,0,0,0);
INSERT INTO "counters" VALUES(2,3,1,0,1767225600000,9223372036854775807,0,0,0,1,0,0,0,0);
CREATE TABLE deleted_queues (
  name TEXT PRIMARY KEY,
  deleted_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE done (
  id INTEGER PRIMARY KEY,
  queue_id INTEGER NOT NULL,
  state INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  finished_at_ms INTEGER NOT NULL,
  holder TEXT
);
INSERT INTO "done" VALUES(1,1,2,1,1767225600003,'host:9010:0:worker:1');
INSERT INTO "done" VALUES(2,1,3,1,1767225600003,'host:9010:0:worker:1');
CREATE TABLE dropped_queues (
  queue_id INTEGER PRIMARY KEY
);
CREATE TABLE expiries (
  expires_at_ms INTEGER NOT NULL,
  id INTEGER NOT NULL,
  PRIMARY KEY (expires_at_ms, id)
) WITHOUT ROWID;
INSERT INTO "expiries" VALUES(1767312000000,5);
CREATE TABLE failure_hours (
  queue_id INTEGER NOT NULL,
  hour INTEGER NOT NULL,
  name TEXT NOT NULL,
  failures INTEGER NOT NULL,
  PRIMARY KEY (queue_id, hour, name)
) WITHOUT ROWID;
INSERT INTO "failure_hours" VALUES(1,490896,'354e69245cd6cbcb',1);
INSERT INTO "failure_hours" VALUES(1,490896,'8594182851e8a94b',1);
CREATE TABLE failures (
  queue_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  task TEXT NOT NULL,
  error_type TEXT NOT NULL,
  pattern TEXT NOT NULL,
  failures INTEGER NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  id INTEGER NOT NULL,
  PRIMARY KEY (queue_id, name)
) WITHOUT ROWID;
INSERT INTO "failures" VALUES(1,'354e69245cd6cbcb','','ValueError','no',1,1767225600003,1767225600003,1,2);
INSERT INTO "failures" VALUES(1,'8594182851e8a94b','','OSError','',1,1767225600003,1767225600003,1,3);
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
INSERT INTO "jobs" VALUES(1,1,1,1767225600000,2,1767225600000,NULL,X'6F6E65');
INSERT INTO "jobs" VALUES(2,1,1,1767225600000,2,1767225600000,NULL,X'74776F');
INSERT INTO "jobs" VALUES(3,1,1,1767225600000,2,1767225600000,NULL,X'7468726565');
INSERT INTO "jobs" VALUES(4,1,1,1767225600000,2,1767225600000,NULL,X'666F7572');
INSERT INTO "jobs" VALUES(5,1,2,1767225600000,3,1767225600000,'{"status":"new;","headers":{"trace":"ä"},"unique":["order-5",1,0],"timeout_ms":9000,"expires_ms":1767312000000}',X'00FF2066697665');
INSERT INTO "jobs" VALUES(6,1,2,1767229200000,1,1767225600000,NULL,X'736978');
INSERT INTO "jobs" VALUES(7,2,3,1767225600000,1,1767225600000,NULL,X'');
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE ordered (
  id INTEGER PRIMARY KEY,
  queue_id INTEGER NOT NULL,
  ordering_key TEXT NOT NULL,
  number INTEGER NOT NULL,
  due_ms INTEGER NOT NULL
);
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
INSERT INTO "progress" VALUES(2,2,0,1,1767225600000,1767225600003,'','ValueError','no','[[1,"host:9010:0:worker:1",1767225600001,1767225600003,"failed","ValueError","no"]]',NULL);
INSERT INTO "progress" VALUES(3,2,1,1,1767225601003,1767225600003,'again;','OSError','','[[1,"host:9010:0:worker:1",1767225600001,1767225600003,"failed","OSError",""]]',NULL);
INSERT INTO "progress" VALUES(4,2,2,0,1767225600002,1767225600002,'','','','[]',X'666F75722C2068616C66776179');
CREATE TABLE queues (
  queue_id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  paused INTEGER NOT NULL DEFAULT 0,
  config TEXT NOT NULL DEFAULT '{}',
  created_at_ms INTEGER NOT NULL
);
INSERT INTO "queues" VALUES(1,'emails',0,'{}',1767225600000);
INSERT INTO "queues" VALUES(2,'images',1,'{"max_jobs_per_second": 2.5, "claim_timeout_ms": 5000}',1767225600000);
CREATE TABLE ready (
  queue_id INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  run_after_ms INTEGER NOT NULL,
  id INTEGER NOT NULL,
  changed INTEGER NOT NULL,
  PRIMARY KEY (queue_id, priority, run_after_ms, id)
) WITHOUT ROWID;
INSERT INTO "ready" VALUES(1,1,1767225601003,3,1);
INSERT INTO "ready" VALUES(1,2,1767225600000,5,0);
INSERT INTO "ready" VALUES(1,2,1767229200000,6,0);
INSERT INTO "ready" VALUES(2,3,1767225600000,7,0);
CREATE TABLE request_keys (
  queue_id INTEGER NOT NULL,
  key TEXT NOT NULL,
  seen_at_ms INTEGER NOT NULL,
  fingerprint BLOB NOT NULL,
  answer BLOB NOT NULL,
  existing TEXT,
  PRIMARY KEY (queue_id, key)
) WITHOUT ROWID;
INSERT INTO "request_keys" VALUES(1,'request-1',1767225600000,X'7072696E74',X'010000000000000002000000000000000300000000000000040000000000000005000000000000000600000000000000',NULL);
CREATE TABLE samples (
  step_s INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  queue TEXT NOT NULL,
  origin TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (step_s, at_ms, queue, origin)
) WITHOUT ROWID;
CREATE TABLE unique_keys (
  queue_id INTEGER NOT NULL,
  key TEXT NOT NULL,
  scope INTEGER NOT NULL,
  id INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  until_ms INTEGER,
  PRIMARY KEY (queue_id, key)
) WITHOUT ROWID;
INSERT INTO "unique_keys" VALUES(1,'order-5',1,5,2,NULL);
CREATE INDEX claims_by_deadline ON claims (deadline_ms);
CREATE INDEX done_by_finish ON done (queue_id, state, priority, finished_at_ms);
CREATE INDEX unique_keys_by_time ON unique_keys (until_ms) WHERE until_ms IS NOT NULL;
CREATE INDEX request_keys_by_time ON request_keys (seen_at_ms);
CREATE INDEX deleted_queues_by_time ON deleted_queues (deleted_at_ms);
CREATE INDEX samples_by_queue ON samples (queue, step_s, at_ms);
CREATE INDEX failures_by_time ON failures (last_ms);
CREATE INDEX failure_hours_by_hour ON failure_hours (hour);
CREATE UNIQUE INDEX ordered_by_key ON ordered (queue_id, ordering_key, number);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('queues',2);
COMMIT;
PRAGMA user_version = 6;
