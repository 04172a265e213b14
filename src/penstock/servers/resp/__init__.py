"""The Redis protocol: `parser` and `encoder` for the wire format, `table` and `commands` for the commands, `connection`
and `server` for the sockets, `backend` for the operations, which are coalesced over all connections."""
