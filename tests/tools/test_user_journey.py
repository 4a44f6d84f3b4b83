"""`tools/user_journey.py` goes all the way, and stops where a command does not do what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

JOURNEY = Path(__file__).parents[2] / "tools" / "user_journey.py"


def test_a_new_user_gets_from_photos_to_a_model_of_their_own(tmp_path):
    ran = subprocess.run([sys.executable, str(JOURNEY), str(tmp_path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_command_that_fails_ends_the_journey(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(JOURNEY.parent))
    import user_journey

    monkeypatch.setattr(user_journey, "STEPS", (lambda user: user.run("nonsense"),))
    assert user_journey.main([str(tmp_path)]) == 1
