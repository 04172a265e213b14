"""Engines: the contract, the queue over positions, and one folder per database."""
