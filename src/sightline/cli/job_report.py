"""What commands tell about a job that went over photos."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.jobs.job import Report


def as_json(report: Report, seconds: float, *more: str) -> dict[str, Any]:
    """The counts of a run, those of `more` too, how long it took, and each file that was left out."""
    new = {id(error) for error in report.news}
    bad = [{"path": e.where, "error": e.what, "fix": e.fix, "new": id(e) in new} for e in report.bad]
    counts = {name: getattr(report, name) for name in ("photos", "made", "kept", *more)}
    return {**counts, "seconds": round(seconds, 3), "bad": bad}


def tell(report: Report) -> None:
    """At the end, on standard error: which files were left out and why; once, unless they change."""
    if report.news:
        from sightline.vision.photo_reader import left_out

        print(left_out(report.news), file=sys.stderr)
    if told := len(report.bad) - len(report.news):
        many = "1 file that was told before is" if told == 1 else f"{told:,} files that were told before are"
        print(f"{many} still left out; --json lists all", file=sys.stderr)
    if not report.photos:
        print("No photo was found there. To fix: name a folder that has some.", file=sys.stderr)
