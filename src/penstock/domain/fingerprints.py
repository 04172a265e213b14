"""Fingerprints of reasons: error texts with ids, times and numbers replaced by placeholders.

The rules are regular expressions that Python and Java read alike, so that the pipeline applies the same ones.
"""

from __future__ import annotations

import re

# (pattern, placeholder), applied in this order: ids before the digits in them.
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
# Later text is mostly a stack trace.
EXAMINED_CHARACTERS = 1000
KEPT_CHARACTERS = 200


def fingerprint(reason: str | None) -> str:
    """Equal for reasons that describe the same fault."""
    if reason is None or not reason.strip():
        return NO_REASON
    text = reason[:EXAMINED_CHARACTERS]
    for pattern, stand_in in _COMPILED:
        text = pattern.sub(stand_in, text)
    return text.strip()[:KEPT_CHARACTERS]


_COMPILED = [(re.compile(pattern), stand_in) for pattern, stand_in in RULES]
