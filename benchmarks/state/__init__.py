"""Keyed state and timers: Headrace beside Spark's own Python state, and what many live timers cost."""
