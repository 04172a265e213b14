"""The queue over numbered positions and named statements, for engines that write the log in commit order."""
