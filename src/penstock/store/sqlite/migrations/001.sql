CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
);

CREATE TABLE definitions (
    hash  TEXT PRIMARY KEY,
    name  TEXT NOT NULL,
    body  BLOB NOT NULL
);

CREATE TABLE runs (
    key      INTEGER PRIMARY KEY AUTOINCREMENT,
    run      TEXT NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    hash     TEXT NOT NULL,
    source   TEXT NOT NULL DEFAULT '',
    children TEXT NOT NULL DEFAULT '{}',
    status   TEXT NOT NULL DEFAULT 'pending',
    reason   TEXT NOT NULL DEFAULT '',
    started  REAL NOT NULL,
    ended    REAL,
    events   INTEGER NOT NULL DEFAULT 0,
    parent   TEXT,
    fork_of  TEXT,
    fork_at  INTEGER
);
CREATE INDEX runs_by_status ON runs (status, started);
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_fork ON runs (fork_of) WHERE fork_of IS NOT NULL;

-- A row is what one commit added to one run: lines, each a batch (a JSON array of events).
-- id = run key << 32 | number of the first event.
CREATE TABLE events (
    id      INTEGER PRIMARY KEY,
    last    INTEGER NOT NULL,
    batches BLOB NOT NULL
);

CREATE TABLE blobs (
    hash TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE checkpoints (
    checkpoint TEXT PRIMARY KEY,
    run        TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    at         REAL NOT NULL,
    layer      INTEGER NOT NULL,
    state      BLOB NOT NULL
);
CREATE INDEX checkpoints_by_run ON checkpoints (run, seq);

CREATE TABLE commands (
    id     TEXT NOT NULL,
    run    TEXT NOT NULL,
    sent   REAL NOT NULL,
    body   BLOB NOT NULL,
    taken  REAL,
    answer TEXT,
    PRIMARY KEY (run, id)
);
CREATE INDEX commands_waiting ON commands (run) WHERE taken IS NULL;

CREATE TABLE leases (
    run     TEXT PRIMARY KEY,
    owner   TEXT NOT NULL,
    claim   TEXT NOT NULL,
    expires REAL NOT NULL
);

-- Every event of a store that is not sealed, one a row. `event` is its JSON.
CREATE VIEW history AS
SELECT runs.run                               AS run,
       json_extract(event.value, '$.seq')     AS seq,
       json_extract(event.value, '$.at')      AS at,
       json_extract(event.value, '$.type')    AS type,
       event.value                            AS event
  FROM events
  JOIN runs ON runs.key = events.id >> 32
  JOIN json_each(
           CASE substr(events.batches, 1, 4)
           WHEN x'00707331' THEN '[]'
           ELSE '[' || replace(rtrim(CAST(events.batches AS TEXT), char(10)), char(10), ',') || ']'
           END) AS batch
  JOIN json_each(batch.value) AS event;

CREATE VIEW tasks AS
SELECT run,
       json_extract(event, '$.step')                    AS step,
       coalesce(json_extract(event, '$.iteration'), 1)  AS iteration,
       json_extract(event, '$.item')                    AS item,
       coalesce(json_extract(event, '$.attempt'), 1)    AS attempt,
       CASE type WHEN 'task_complete' THEN 'succeeded'
                 WHEN 'task_error' THEN 'failed'
                 ELSE 'skipped' END                     AS status,
       seq,
       at
  FROM history
 WHERE type IN ('task_complete', 'task_error', 'task_skipped');

CREATE VIEW decisions AS
SELECT asked.run                                   AS run,
       json_extract(asked.event, '$.decision')     AS decision,
       json_extract(asked.event, '$.kind')         AS kind,
       json_extract(asked.event, '$.step')         AS step,
       json_extract(asked.event, '$.summary')      AS summary,
       asked.at                                    AS asked,
       json_extract(asked.event, '$.deadline')     AS deadline,
       made.at                                     AS answered,
       json_extract(made.event, '$.verb')          AS verb,
       json_extract(made.event, '$.by')            AS answered_by
  FROM history AS asked
  LEFT JOIN history AS made
         ON made.run = asked.run AND made.type = 'decision_made'
        AND json_extract(made.event, '$.decision') = json_extract(asked.event, '$.decision')
 WHERE asked.type = 'decision_required';
