"""The command line: output, exit codes and errors of each command."""
