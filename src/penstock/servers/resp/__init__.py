"""The Redis protocol. `parser` and `encoder` know bytes, `table` and `commands` know words, `connection` and `server`
know sockets; `door` hands what the commands want to the store, all connections together."""
