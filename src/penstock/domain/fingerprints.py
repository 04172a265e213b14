"""Fingerprints of reasons: what is left of an error when everything that differs from message to message is taken out.

The rules are plain regular expressions that Python and Java read alike, so the pipeline can apply the same ones.
"""

from __future__ import annotations

import re

# (what differs, what stands for it), in this order: an id is taken out before its digits are.
RULES = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<id>"),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}[0-9:.,]*(Z|[+-][0-9]{2}:?[0-9]{2})?", "<time>"),
    (r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", "<address>"),
    (r"'[^']{0,200}'", "'…'"),
    (r'"[^"]{0,200}"', '"…"'),
    (r"0x[0-9a-fA-F]+", "<hex>"),
    (r"\b[0-9a-fA-F]{16,}\b", "<hex>"),
    (r"[0-9]+([.,][0-9]+)*", "<n>"),
    (r"\s+", " "),
)
NO_REASON = "(no reason given)"
# What comes later in an error is a trace of where, not of what.
EXAMINED_CHARACTERS = 1000
KEPT_CHARACTERS = 200


def fingerprint(reason: str | None) -> str:
    """Equal for reasons that tell of the same fault."""
    if reason is None or not reason.strip():
        return NO_REASON
    text = reason[:EXAMINED_CHARACTERS]
    for pattern, stand_in in _COMPILED:
        text = pattern.sub(stand_in, text)
    return text.strip()[:KEPT_CHARACTERS]


_COMPILED = [(re.compile(pattern), stand_in) for pattern, stand_in in RULES]
