"""A send in the caller's own transaction, on the drivers and frameworks that programs use."""
