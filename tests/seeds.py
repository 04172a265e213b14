"""The seed of every random choice that tests make.

A run takes the same seed as the run before, so that a commit is red or green and not both. PENSTOCK_TEST_SEED names
another one, or `random` for a new one in every test; a failing test prints the seed that it had. PENSTOCK_WALKS is the
number of random walks of each test that walks.
"""

from __future__ import annotations

import os
import random

VARIABLE = "PENSTOCK_TEST_SEED"
USUAL = 4777
CHOSEN = os.environ.get(VARIABLE, "")
WALKS = os.environ.get("PENSTOCK_WALKS", "")


def is_random() -> bool:
    return CHOSEN == "random"


def choose_seed() -> int:
    seed = random.SystemRandom().randrange(1 << 32) if is_random() else int(CHOSEN or USUAL)
    print(f"{VARIABLE}={seed}")
    return seed


def walks(usual: int) -> int:
    """How many walks a test makes: a few in every run, thousands in a long one."""
    return int(WALKS or usual)
