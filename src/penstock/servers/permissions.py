"""The right that each action needs, in every protocol: Redis commands and HTTP operations take their rights from here,
so that an action never needs two different ones."""

from __future__ import annotations

from penstock.servers.access import Right


class Needs:
    SEND = Right.SEND
    RECEIVE = Right.RECEIVE
    SETTLE = Right.RECEIVE
    REGISTER_CONSUMER = Right.RECEIVE
    READ_LEASE_TOKENS = Right.RECEIVE

    READ_MESSAGES = Right.LOOK
    READ_QUEUES = Right.LOOK
    READ_POLICY = Right.LOOK
    READ_DEAD_LETTERS = Right.LOOK
    READ_BATCHES = Right.LOOK
    READ_SCHEDULES = Right.LOOK
    READ_CONSUMERS = Right.LOOK
    READ_PIPELINE = Right.LOOK

    PAUSE_QUEUE = Right.OPERATE
    REDRIVE = Right.OPERATE
    RUN_BATCHES = Right.OPERATE
    PAUSE_SCHEDULE = Right.OPERATE
    RUN_SCHEDULE = Right.OPERATE
    SWEEP = Right.OPERATE

    SET_POLICY = Right.MANAGE
    SET_SCHEDULE = Right.MANAGE
    FLUSH = Right.MANAGE
    DELETE_QUEUE = Right.MANAGE
    PURGE = Right.MANAGE
    SEEK = Right.MANAGE
