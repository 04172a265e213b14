"""The whole life of a message: send, receive, ack. Messages per second, for several batch sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.finding import Finding, Target, shown_spread, spread
from bench.peers import PEERS, PENSTOCK, Peer, opened
from bench.peers.huey_storage import HueyStorage
from bench.plan import PAYLOAD_BYTES, Plan, payload
from bench.rounds import rates, ratios
from bench.warm_up import warm

BATCHES = (1, 10, 100, 1000)
OTHERS = [name for name in PEERS if name != PENSTOCK]
WITH_ACK = [name for name in OTHERS if PEERS[name] is not HueyStorage]
# A contender without batches does the same calls one by one, however many there are; this many make one turn.
TURN = 10


def run(plan: Plan) -> Finding:
    data: dict[str, Any] = {"batches": list(BATCHES), "rates": {name: [] for name in PEERS}}
    data.update(best_peer=[], best_peer_with_ack=[])
    rows = []
    peers = {name: _warmed(name, plan.place(f"lifecycle-{name}")) for name in PEERS}
    for batch in BATCHES:
        measured = _measure(plan, peers, batch)
        for name in PEERS:
            data["rates"][name].append(spread(measured[name]))
        best = _best(measured, OTHERS)
        data["best_peer"].append(best)
        data["best_peer_with_ack"].append(_best(measured, WITH_ACK))
        per_second = [shown_spread(spread(measured[name])) for name in PEERS]
        rows.append([f"{batch:,}", *per_second, f"{shown_spread(best['ratio'], ',.1f')} × {best['name']}"])
    for peer in peers.values():
        peer.close()
    return Finding(
        name="lifecycle",
        title=f"Send, receive and ack: messages per second, payloads of {PAYLOAD_BYTES} bytes",
        header=["batch", *PEERS, "penstock ÷ best peer"],
        rows=rows,
        data=data,
        draw=lambda axes: _draw(axes, data),
        targets=_targets(data),
        notes=(
            "Medians of the rounds, with the lowest and the highest; the ratio is taken round by round.",
            "huey has no ack, so its messages do one step less; huey and persist-queue have no batches.",
            "Penstock commits a receive without waiting for the disk: losing one only means a redelivery.",
        ),
    )


def _warmed(name: str, folder: Path) -> Peer:
    peer = opened(name, folder)
    warm(folder, _work(peer, TURN))
    return peer


def _measure(plan: Plan, peers: dict[str, Peer], batch: int) -> dict[str, list[float]]:
    work = {name: _work(peer, batch) for name, peer in peers.items()}
    return rates(work, plan.rounds, plan.round_seconds, tidy=[peer.tidy for peer in peers.values()])


def _work(peer: Peer, batch: int) -> Callable[[], int]:
    size = batch if peer.largest_batch >= batch else min(batch, TURN)
    payloads = [payload(number) for number in range(size)]

    def work() -> int:
        moved = peer.cycle(payloads)
        assert moved == size, f"{peer.name} moved {moved} of {size} messages"
        return moved

    return work


def _best(measured: dict[str, list[float]], names: list[str]) -> dict[str, Any]:
    best = max(names, key=lambda name: spread(measured[name])["median"])
    return {"name": best, "ratio": spread(ratios(measured, PENSTOCK, best))}


def _targets(data: dict[str, Any]) -> list[Target]:
    single, acked, thousand = data["best_peer"][0], data["best_peer_with_ack"][0], data["best_peer"][-1]
    rate = data["rates"][PENSTOCK][-1]["median"]
    beside, alone, alike = (one["ratio"]["median"] for one in (thousand, single, acked))
    return [
        Target("at batch 1,000: at least 150,000 messages per second", rate, rate >= 150_000),
        Target(f"at batch 1,000: at least 20 times {thousand['name']}", beside, beside >= 20),
        Target(f"at batch 1: not slower than {single['name']}, the fastest", alone, alone >= 1),
        Target(f"at batch 1: not slower than {acked['name']}, the fastest that has an ack", alike, alike >= 1),
    ]


def _draw(axes: Any, data: dict[str, Any]) -> None:
    width = 0.8 / len(PEERS)
    for place, name in enumerate(PEERS):
        heights = [one["median"] for one in data["rates"][name]]
        axes.bar([x + place * width for x in range(len(BATCHES))], heights, width, label=name)
    axes.set_xticks([x + 0.4 - width / 2 for x in range(len(BATCHES))], [f"{batch:,}" for batch in BATCHES])
    axes.set(yscale="log", xlabel="batch", ylabel="messages per second", title="send + receive + ack")
    axes.legend()
