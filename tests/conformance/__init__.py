"""Every behaviour, proven on every engine and through both Python doors: one file per verb.

A test is written once, in the synchronous calling style. `engines.py` lists the engines, `doors.py` the ways in;
the fixtures in `conftest.py` multiply the two. Time stands still unless a test moves the clock.
"""
