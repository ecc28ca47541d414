"""Runs remembered in a SQLite file: WAL, one writer thread, group commit."""
