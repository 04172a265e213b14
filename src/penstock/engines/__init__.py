"""Where messages live: one contract, and one folder per engine."""
