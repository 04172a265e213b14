"""Consumer groups as a user of walrus writes them: `walrus_program.py PORT PREFIX`.

It prints what it saw as JSON. It knows nothing of Penstock: the same program runs against Redis, to compare.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from walrus import Database  # type: ignore[import-not-found]  # lives in a folder of its own


def main() -> None:
    port, prefix = int(sys.argv[1]), sys.argv[2]
    database = Database(host="127.0.0.1", port=port)
    names = [f"{prefix}-a", f"{prefix}-b"]
    seen: dict[str, Any] = {}
    orders, bills = [database.Stream(name) for name in names]
    seen["add"] = [orders.add({"n": "1"}), orders.add({"n": "2"})]
    time.sleep(0.005)  # in another millisecond, so that Redis does not give the same id in the other stream
    seen["add"].append(bills.add({"n": "3"}))
    seen["length"] = [len(orders), len(bills)]
    group = database.consumer_group("workers", names)
    seen["create"] = list(group.create().values())
    seen["create again"] = list(group.create().values())
    seen["set"] = list(group.set_id("0").values())
    seen["read one"] = group.read(count=1)
    seen["read rest"] = group.read()
    seen["read none"] = group.read(count=1, block=10)
    first = group.streams[names[0]]
    seen["pending"] = [[one["message_id"], one["consumer"], one["times_delivered"]] for one in first.pending()]
    other = group.consumer("other")
    held = [one["message_id"] for one in first.pending()]
    seen["claim"] = other.streams[names[0]].claim(held[0])
    seen["ack"] = first.ack(*held)
    seen["autoclaim"] = other.streams[names[1]].autoclaim("other", 0)[1:]
    seen["info"] = [group_info["name"] for group_info in orders.groups_info()]
    seen["consumers"] = sorted(one["name"] for one in first.consumers_info())
    seen["range"] = list(orders)
    seen["delete"] = orders.delete(seen["add"][0])
    seen["trim"] = orders.trim(1, approximate=False)
    late = database.consumer_group("late", [f"{prefix}-c"])
    seen["create without stream"] = list(late.create(ensure_keys_exist=False, mkstream=True).values())
    seen["destroy"] = list(group.destroy().values())
    orders.clear()
    seen["cleared"] = names[0] in database
    print(json.dumps({step: _plain(found) for step, found in seen.items()}))


def _plain(value: Any) -> Any:
    """As JSON can have it."""
    if isinstance(value, dict):
        return [[_plain(key), _plain(one)] for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
