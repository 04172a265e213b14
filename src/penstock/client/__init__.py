"""How a program uses a store: the Python door. `aio` holds its asynchronous twin."""
