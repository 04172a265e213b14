"""Every behaviour on every engine, through the synchronous and the asynchronous client: one file per verb.

A test is written once, in the synchronous calling style. `engines.py` lists the engines, `clients.py` the clients;
the fixtures in `conftest.py` combine the two. Time stands still unless a test moves the clock.
"""
