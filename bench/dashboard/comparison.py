"""The ratio of two things measured in the same rounds, with its confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

# Of a normal distribution 95 % lie within this many standard deviations.
SURE = 1.96


class Compared(NamedTuple):
    """A ratio with its 95 % confidence interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


def compared(ratios: Sequence[float]) -> Compared:
    """The ratio of each round counts by its rank (Hodges and Lehmann; the bounds of Wilcoxon's signed ranks): a round
    in which the machine did something else pulls little, and no shape of the noise is assumed but that it is the same
    on both sides. That is so for their logarithms: twice as fast and half as fast must cancel out."""
    count, logarithms = len(ratios), [math.log(ratio) for ratio in ratios]
    means = sorted((one + other) / 2 for place, one in enumerate(logarithms) for other in logarithms[: place + 1])
    cut = count * (count + 1) / 4 - SURE * math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    place = max(0, math.floor(cut))
    return Compared(*(math.exp(one) for one in (statistics.median(means), means[place], means[-1 - place])))
