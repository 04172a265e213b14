"""The Redis protocol. `parser` and `encoder` know bytes, `table` and `commands` know words, `connection` and `server`
know sockets; `backend` turns what commands want into operations that coalesce over all connections."""
