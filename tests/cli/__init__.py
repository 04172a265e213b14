"""The command line: what each command does, says and refuses."""
