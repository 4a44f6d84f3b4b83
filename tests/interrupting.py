"""Processes that can be interrupted, also where the tests themselves run in the background and nobody may."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    """The command, running, its output piped; an interrupt ends it as it would in a terminal."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a child inherits what is ignored, not what is handled
    try:
        return subprocess.Popen(list(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
