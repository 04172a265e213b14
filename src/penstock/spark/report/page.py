"""The page: a summary as one self-contained HTML file without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from penstock.domain.lifecycle import OUTCOMES
from penstock.spark.report.charts import Chart, charts, has_several_groups, name_of
from penstock.spark.report.findings import Finding, findings
from penstock.spark.report.format import (
    NOTHING,
    duration,
    every,
    moment,
    number,
    period,
    plural,
    safe,
    share,
)
from penstock.spark.report.summary import Summary

MARKS = {"good": "✓", "note": "i", "bad": "!"}


def page(summary: Summary) -> str:
    style = files("penstock.spark.report").joinpath("style.css").read_text(encoding="utf-8")
    body = [
        _header(summary),
        _tiles(summary),
        _findings(findings(summary)),
        f'<section class="charts">{"".join(_chart(one) for one in charts(summary))}</section>',
        _queues(summary),
        _failures(summary),
        _poison(summary),
        _workers(summary),
        _footer(summary),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # The dashboard serves only files with this tag.
        '<meta name="generator" content="penstock report">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Penstock report, {safe(f'{summary.made_at:%Y-%m-%d}')}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(body)}\n</main>\n</body>\n</html>\n"
    )


def _header(summary: Summary) -> str:
    text = "No messages yet"
    if summary.begins_at is not None and summary.ends_at is not None:
        text = f"{period(summary.begins_at, summary.ends_at)} · {duration(summary.seconds)}"
    when, store = f'<p class="when">{safe(text)}</p>', f'<p class="store">{safe(summary.store)}</p>'
    return f"<header><h1>Penstock report</h1>{when}{store}</header>"


def _tiles(summary: Summary) -> str:
    ended = {str(state): sum(reader.outcomes.get(state, 0) for reader in summary.readers) for state in OUTCOMES}
    dead = sum(count for state, count in ended.items() if state != "succeeded")
    live = sum(count for reader in summary.readers for state, count in reader.outcomes.items() if state not in OUTCOMES)
    sent = sum(summary.sent.values())
    waits = [reader.waited[0] for reader in summary.readers if reader.waited[0] is not None]
    rate = sent / summary.seconds if summary.seconds else 0
    all_ended = sum(ended.values())
    busy = f"{number(rate)} per second" if rate >= 1 else f"in {plural(len(summary.sent), 'queue')}"
    # A message is sent once, and ends in every group that reads it.
    several = has_several_groups(summary)
    once, each = ("each message once, ", ", counted in each group") if several else ("", "")
    tiles = [
        ("Sent", number(sent), f"{once}{busy}", ""),
        (
            "Succeeded",
            number(ended["succeeded"]),
            f"{share(ended['succeeded'], all_ended)} of all endings{each}",
            "good",
        ),
        ("Dead letters", number(dead), f"{share(dead, all_ended)} of all endings{each}", "bad" if dead else ""),
        ("Not ended yet", number(live), f"waiting or in flight{each}", ""),
        ("Median wait", duration(max(waits)) if waits else NOTHING, "of the slowest queue", ""),
    ]
    drawn = "".join(
        f'<div class="tile {colour}"><span>{safe(name)}</span><strong>{safe(value)}</strong>'
        f"<small>{safe(about)}</small></div>"
        for name, value, about, colour in tiles
    )
    return f'<section class="tiles">{drawn}</section>'


def _findings(found: Sequence[Finding]) -> str:
    drawn = "".join(
        f'<li class="{one.level}"><b aria-hidden="true">{MARKS[one.level]}</b><span>{safe(one.sentence)}</span></li>'
        for one in found
    )
    return f'<section class="findings"><h2>What stands out</h2><ul>{drawn}</ul></section>'


def _chart(chart: Chart) -> str:
    legend = "".join(f'<li><i class="{colour}"></i>{safe(name)}</li>' for name, colour in chart.legend)
    return (
        f"<figure><figcaption><h3>{safe(chart.heading)}</h3><p>{safe(chart.about)}</p></figcaption>"
        f"{chart.picture}{f'<ul class=legend>{legend}</ul>' if legend else ''}</figure>"
    )


def _queues(summary: Summary) -> str:
    rows = [
        [
            name_of(summary, (reader.queue, reader.group)),
            number(summary.sent.get(reader.queue, 0)),
            number(reader.deliveries),
            number(reader.outcomes.get("succeeded", 0)),
            number(
                sum(count for state, count in reader.outcomes.items() if state in OUTCOMES and state != "succeeded")
            ),
            number(sum(count for state, count in reader.outcomes.items() if state not in OUTCOMES)),
            *(duration(value) for value in (*reader.waited, *reader.processed)),
        ]
        for reader in summary.readers
    ]
    header = ["Queue", "Sent", "Deliveries", "Succeeded", "Dead", "Live"]
    header += [f"{what} {part}" for what in ("Waited", "Processed") for part in ("p50", "p95", "p99")]
    return _table("Queues", header, rows)


def _failures(summary: Summary) -> str:
    rows = [
        [
            name_of(summary, (failure.queue, failure.group)),
            failure.pattern,
            number(failure.failures),
            number(failure.messages),
            number(failure.dead),
            f"{failure.most_failures}× ({plural(failure.repeated, 'message')})",
            f"{failure.last_at:%Y-%m-%d %H:%M:%S}",
        ]
        for failure in summary.failures
    ]
    header = ["Queue", "Reason", "Failures", "Messages", "Dead", "Most for one", "Last (UTC)"]
    return _table("Failures by kind", header, rows, text=2, more=summary.more["failures"])


def _poison(summary: Summary) -> str:
    rows = [
        [
            name_of(summary, (one.queue, one.group)),
            one.id,
            one.pattern,
            number(one.failures),
            one.state.replace("_", " "),
            f"{one.last_at:%Y-%m-%d %H:%M:%S}",
        ]
        for one in summary.poison
    ]
    header = ["Queue", "Message", "Reason", "Failures", "Now", "Last (UTC)"]
    return _table("Messages that keep failing", header, rows, text=3, more=summary.more["poison"])


def _workers(summary: Summary) -> str:
    rows = [
        [
            load.worker,
            number(load.received),
            number(load.succeeded),
            number(load.failed),
            duration(load.busy_seconds),
            f"{load.in_hand / load.busy_seconds:.1f}" if load.busy_seconds else NOTHING,
        ]
        for load in summary.workers
    ]
    header = ["Worker", "Deliveries", "Succeeded", "Failed", "Busy for", "In hand when busy"]
    return _table("Workers", header, rows, more=summary.more["workers"])


def _table(heading: str, header: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1, more: int = 0) -> str:
    """The first `text` columns are text, the others numbers. Empty without rows."""
    if not rows:
        return ""
    kinds = ["text" if place < text else "number" for place in range(len(header))]
    head = "".join(f'<th class="{kind}">{safe(name)}</th>' for name, kind in zip(header, kinds, strict=True))
    lines = "".join(
        f"<tr>{''.join(f'<td class={kind}>{safe(value)}</td>' for value, kind in zip(row, kinds, strict=True))}</tr>"
        for row in rows
    )
    rest = f'<p class="more">and {number(more)} more, in the tables beside the lake</p>' if more else ""
    return (
        f'<section class="table"><h2>{safe(heading)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>{rest}</section>"
    )


def _footer(summary: Summary) -> str:
    text = (
        f"Made by Penstock at {moment(summary.made_at)}. Plots have a point for each {every(summary.width_seconds)}. "
        "Times are in UTC; p50, p95 and p99 are the times within which 50, 95 and 99 % stayed."
    )
    return f"<footer><p>{safe(text)}</p></footer>"
