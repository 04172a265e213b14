"""A Worker object for the command line."""

from __future__ import annotations

import os

import penstock
from tests.workers import tasks_app

worker = penstock.Worker(penstock.connect(os.environ["TASKS_URL"]), tasks_app.app, concurrency=2)
