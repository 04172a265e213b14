"""`penstock demo`: a small shop that lives through a bad ten seconds, in real processes on a real store.

`plan` says what is sent and what must become of it, `producers` and `consumers` are the processes, `story` runs them,
`findings` looks at what is in the store afterwards, and `summary` tells it.
"""
