"""The Spark source and sink beside Spark's own JDBC source and writer, on the same database, in one run."""
