"""Programs of users under type checkers."""
