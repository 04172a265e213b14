"""The lake: finished messages, audit and dead letters as Parquet files, by day and queue.

A manifest in the store lists the lake's files and the marks up to which it is complete. Files are staged, moved into
place, and then entered in the manifest together with the marks, in one transaction. After a crash the next run finishes
or undoes the change, and every row is there exactly once.
"""
