"""The schema, forward only: `NNN.sql` files, each applied once, in one transaction."""
