"""Penstock on MariaDB beside queues that others keep in MariaDB and MySQL."""
