CREATE TABLE definitions (
    hash text PRIMARY KEY,
    name text NOT NULL,
    body bytea NOT NULL
);

CREATE TABLE runs (
    key      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run      text NOT NULL UNIQUE,
    workflow text NOT NULL,
    hash     text NOT NULL REFERENCES definitions,
    source   text NOT NULL DEFAULT '',
    status   text NOT NULL DEFAULT 'running',
    reason   text NOT NULL DEFAULT '',
    started  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended    timestamptz,
    parent   text,
    fork_of  text REFERENCES runs (run),
    fork_at  bigint,
    claim    text NOT NULL
);
COMMENT ON COLUMN runs.claim IS 'Who created it, once: a create that is tried again finds its own row.';
CREATE INDEX runs_by_start ON runs (started DESC, key DESC);
CREATE INDEX runs_by_status ON runs (status, started);
CREATE INDEX runs_by_hash ON runs (hash);
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_fork ON runs (fork_of) WHERE fork_of IS NOT NULL;

-- The workflows that a run may call, in the version it is bound to.
CREATE TABLE pins (
    key  bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    name text NOT NULL,
    hash text NOT NULL REFERENCES definitions,
    PRIMARY KEY (key, name)
);
CREATE INDEX pins_by_hash ON pins (hash);

-- A row is what one commit added to one run: lines, each a batch (a JSON array of events).
-- id = run key << 32 | number of the first event.
CREATE TABLE events (
    id      bigint PRIMARY KEY,
    last    bigint NOT NULL,
    batches bytea NOT NULL
);

CREATE TABLE blobs (
    hash text PRIMARY KEY,
    body bytea NOT NULL
);

CREATE TABLE blob_uses (
    key  bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    hash text NOT NULL REFERENCES blobs,
    PRIMARY KEY (key, hash)
);
CREATE INDEX blob_uses_by_hash ON blob_uses (hash);

CREATE TABLE checkpoints (
    checkpoint text PRIMARY KEY,
    run        text NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    seq        bigint NOT NULL,
    at         double precision NOT NULL,
    layer      integer NOT NULL,
    state      bytea NOT NULL
);
CREATE INDEX checkpoints_by_run ON checkpoints (run, seq);

CREATE TABLE commands (
    number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    id     text NOT NULL,
    run    text NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    sent   timestamptz NOT NULL DEFAULT clock_timestamp(),
    body   bytea NOT NULL,
    taken  timestamptz,
    answer text,
    PRIMARY KEY (run, id)
);
CREATE INDEX commands_waiting ON commands (run) WHERE taken IS NULL;

-- A process that drives runs, and how long it may be silent: one row to keep fresh, however many runs.
CREATE TABLE owners (
    owner   text PRIMARY KEY,
    process text NOT NULL,
    expires timestamptz NOT NULL
);

CREATE TABLE leases (
    run   text PRIMARY KEY REFERENCES runs (run) ON DELETE CASCADE,
    owner text NOT NULL REFERENCES owners ON DELETE CASCADE,
    claim text NOT NULL
);
CREATE INDEX leases_by_owner ON leases (owner);

-- Every event of a store that is not sealed, one a row. `event` is its JSON.
CREATE VIEW history AS
SELECT runs.run,
       (event ->> 'seq')::bigint              AS seq,
       to_timestamp((event ->> 'at')::float8) AS at,
       event ->> 'type'                       AS type,
       event
  FROM events
  JOIN runs ON runs.key = events.id >> 32
 CROSS JOIN LATERAL json_array_elements(
       CASE WHEN get_byte(batches, 0) = 0 THEN '[]'
            ELSE '[' || replace(rtrim(convert_from(batches, 'UTF8'), E'\n'), E'\n', ',') || ']'
       END::json) AS batch
 CROSS JOIN LATERAL json_array_elements(batch) AS event;

CREATE VIEW tasks AS
SELECT run,
       event ->> 'step'                          AS step,
       coalesce((event ->> 'iteration')::int, 1) AS iteration,
       (event ->> 'item')::int                   AS item,
       coalesce((event ->> 'attempt')::int, 1)   AS attempt,
       CASE type WHEN 'task_complete' THEN 'succeeded'
                 WHEN 'task_error' THEN 'failed'
                 ELSE 'skipped' END              AS status,
       seq,
       at
  FROM history
 WHERE type IN ('task_complete', 'task_error', 'task_skipped');

CREATE VIEW decisions AS
SELECT asked.run,
       asked.event ->> 'decision'                         AS decision,
       asked.event ->> 'kind'                             AS kind,
       asked.event ->> 'step'                             AS step,
       asked.event ->> 'summary'                          AS summary,
       asked.at                                           AS asked,
       to_timestamp((asked.event ->> 'deadline')::float8) AS deadline,
       made.at                                            AS answered,
       made.event ->> 'verb'                              AS verb,
       made.event ->> 'by'                                AS answered_by
  FROM history AS asked
  LEFT JOIN history AS made
         ON made.run = asked.run AND made.type = 'decision_made'
        AND made.event ->> 'decision' = asked.event ->> 'decision'
 WHERE asked.type = 'decision_required';
