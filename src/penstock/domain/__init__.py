"""What a queue is. Nothing in this folder does I/O or reads a clock: time and randomness are handed in."""
