"""Runs remembered in a Postgres database: group commit, LISTEN/NOTIFY, leases by the database's clock."""
