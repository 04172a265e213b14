"""The lake: finished messages, audit and dead letters as Parquet files, by day and queue.

A manifest in the store says which files are the lake and up to which marks it goes. Files are written aside, moved to
their places and only then entered in the manifest, in one transaction with the marks: whatever crashes when, the next
run finishes or undoes what was begun, and every row is there exactly once.
"""
