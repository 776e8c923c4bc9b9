"""Tables for notebooks. They set no colors, so that they are readable in light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

MOST_ROWS = 20


def page(title: str, facts: Iterable[str], *parts: str) -> str:
    """Return a title with a line of facts, and the parts below. `parts` are HTML, all else is text."""
    return f"<div><p><b>{escape(title)}</b><br>{escape(' · '.join(facts))}</p>{''.join(parts)}</div>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], total: int) -> str:
    """Return a table of the first rows. Numbers are aligned to the right. `total` is the number of all rows. No rows give ""."""
    shown = list(islice(rows, MOST_ROWS))
    if not shown:
        return ""
    head = "".join(f'<th style="text-align:left">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown)
    more = f"<p>… and {total - len(shown):,} more</p>" if total > len(shown) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def notes(title: str, lines: Sequence[str]) -> str:
    """Return a list of warnings or defects."""
    if not lines:
        return ""
    more = f"<li>… and {len(lines) - MOST_ROWS:,} more</li>" if len(lines) > MOST_ROWS else ""
    return f"<p>{escape(title)}</p><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines[:MOST_ROWS])}{more}</ul>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return _aligned("right", f"{value:.6g}")
    if isinstance(value, int):
        return _aligned("right", f"{value:,}")
    return _aligned("left", str(value))


def _aligned(side: str, text: str) -> str:
    return f'<td style="text-align:{side}">{escape(text)}</td>'
