"""Small tables for ``hr.broadcast_join``: files, Delta tables, queries to PostgreSQL."""
