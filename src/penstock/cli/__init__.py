"""The command line: `penstock`."""

from penstock.cli.program import main

__all__ = ["main"]
