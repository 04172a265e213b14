"""Input that no client would send."""
