"""Calls to several shards of one queue, each of which is made once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.engines.redis.sharded.layout import Layout, LayoutKeeper, following
from penstock.engines.redis.shards import ShardPlace

T = TypeVar("T")
R = TypeVar("R")


class ShardCalls(LayoutKeeper):
    """When a shard refuses a call because the queue has changed, the shards that have answered are not called again:
    they would do it twice, or say that there is nothing left to do. What is left goes where it belongs now."""

    def each_shard(self, queue: str, call: Callable[[ShardPlace], R]) -> list[R]:
        """The answers of all shards."""
        answers: dict[ShardPlace, R] = {}
        self._call_left(queue, call, answers)
        return list(answers.values())

    @following
    def _call_left(self, queue: str, call: Callable[[ShardPlace], R], answers: dict[ShardPlace, R]) -> None:
        for place in self._places(queue):
            if place not in answers:
                answers[place] = call(place)

    def each_share(
        self,
        queue: str,
        items: Iterable[T],
        routes: Callable[[Layout, list[T]], dict[int, list[T]]],
        call: Callable[[ShardPlace, list[T]], R],
    ) -> list[tuple[list[T], R]]:
        """Give every shard its share of the items, which `routes` finds. The shares with the answers to them."""
        left, answers = dict.fromkeys(items), list[tuple[list[T], R]]()
        self._share_left(queue, left, routes, call, answers)
        return answers

    @following
    def _share_left(
        self,
        queue: str,
        left: dict[T, None],
        routes: Callable[[Layout, list[T]], dict[int, list[T]]],
        call: Callable[[ShardPlace, list[T]], R],
        answers: list[tuple[list[T], R]],
    ) -> None:
        layout = self.layout(queue)
        shares = {0: list(left)} if layout is None else routes(layout, list(left))
        places = self._places(queue)
        for shard, own in shares.items():
            answers.append((own, call(places[shard], own)))
            for one in own:
                del left[one]

    def _places(self, queue: str) -> list[ShardPlace]:
        layout = self.layout(queue)
        return [ShardPlace(queue)] if layout is None else layout.places
