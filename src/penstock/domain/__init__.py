"""The rules of the queue. Nothing here does I/O or reads a clock: time and randomness are arguments."""
