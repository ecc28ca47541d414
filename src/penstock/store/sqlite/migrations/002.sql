-- Which runs use a blob. One that was there before this table is used by run 0, which nobody forgets.
CREATE TABLE blob_uses (
    key  INTEGER NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (key, hash)
) WITHOUT ROWID;
CREATE INDEX blob_uses_by_hash ON blob_uses (hash);
INSERT INTO blob_uses SELECT 0, hash FROM blobs;

-- Runs that are forgotten already, while something of them may still be there.
CREATE TABLE forgotten (
    key INTEGER PRIMARY KEY
);
