-- Failures that are remembered beyond their runs, until they expire.
CREATE TABLE examples (
    number   bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    id       text PRIMARY KEY,
    workflow text NOT NULL,
    step     text NOT NULL,
    tool     text NOT NULL,
    at       double precision NOT NULL,
    expires  double precision NOT NULL,
    body     bytea NOT NULL
);
CREATE INDEX examples_by_workflow ON examples (workflow, step, at);
CREATE INDEX examples_by_tool ON examples (tool, at);
CREATE INDEX examples_by_expiry ON examples (expires);
