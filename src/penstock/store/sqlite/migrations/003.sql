-- Failures that are remembered beyond their runs, until they expire.
CREATE TABLE examples (
    id       TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,
    step     TEXT NOT NULL,
    tool     TEXT NOT NULL,
    at       REAL NOT NULL,
    expires  REAL NOT NULL,
    body     BLOB NOT NULL
);
CREATE INDEX examples_by_workflow ON examples (workflow, step, at);
CREATE INDEX examples_by_tool ON examples (tool, at);
CREATE INDEX examples_by_expiry ON examples (expires);
