"""Room door."""
