"""Fault tests for a store of the user's choice.

`penstock chaos` runs producers, consumers and workers as processes of their own, through every protocol, and disturbs
them: it kills and freezes processes, cuts connections, holds transactions open and crashes servers. Each process
appends what it saw to a history file. A checker that shares no code with the engines judges the histories by the laws.

This package uses the public interface of Penstock only, as any user's program does; `checker` does not even use that.
"""
