"""The data pipeline on Spark: everything that reads or moves messages in bulk."""
