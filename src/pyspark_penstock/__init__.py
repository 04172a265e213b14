"""Lets Spark find `format("penstock")` without registration: it looks for modules whose names begin with `pyspark_`."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
