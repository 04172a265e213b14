"""Load of the primaries of a Redis Cluster."""
