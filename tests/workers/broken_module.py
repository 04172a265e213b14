"""A module that does not import."""

from __future__ import annotations

number = 1 / 0
