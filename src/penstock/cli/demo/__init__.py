"""`penstock demo`: a small shop with failures and a killed consumer, in real processes on a real store.

`plan` has the messages and their expected outcomes, `producers` and `consumers` are the processes, `story` runs them,
`findings` compares the store with the plan, and `summary` prints the result.
"""
