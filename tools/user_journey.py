"""What a new user does, from a folder of photos to a model of their own: real commands, each checked.

    python tools/user_journey.py [FOLDER]

Photos are the examples and windows of them. Every command is run as one types it, in FOLDER, which is a temporary one
by default, and tells how long it took. Exit code 1 at the first command that does not do what it should.
"""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
WINDOWS = ((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.8, 0.8), (0.2, 0.2, 1.0, 1.0))  # left, top, right, bottom


class JourneyError(Exception):
    """A command that did not do what it should."""


class Journey:
    """A user in a folder.

    Attributes:
        folder: the current one.
        photos: how many are in `photos/`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.photos = write_photos(folder / "photos", folder / "captions.csv")
        shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("*.ipynb", "*.sh"))

    def run(self, command: str, codes: Sequence[int] = (0,)) -> str:
        """Type `sightline COMMAND`; gives what was printed, standard error after standard output."""
        began = time.monotonic()
        ran = subprocess.run(
            [sys.executable, "-m", "sightline", *shlex.split(command)],
            cwd=self.folder,
            env={**os.environ, "SIGHTLINE_CACHE": str(self.folder / "cache")},
            capture_output=True,
            text=True,
        )
        printed = ran.stdout + ran.stderr
        print(f"{time.monotonic() - began:6.1f} s  sightline {command}", flush=True)
        if ran.returncode not in codes or "Traceback" in printed:
            raise JourneyError(f"exit code {ran.returncode}, where {codes} was expected:\n{printed}")
        return printed

    def json(self, command: str, codes: Sequence[int] = (0,)) -> Any:
        """What a command with --json prints, progress and warnings left out."""
        printed = self.run(f"{command} --json --quiet", codes)
        start = min(printed.find(mark) for mark in "{[" if mark in printed)
        return json.JSONDecoder().raw_decode(printed, start)[0]

    def expect(self, holds: bool, sentence: str) -> None:
        """Stop where something does not hold."""
        if not holds:
            raise JourneyError(sentence)


def write_photos(folder: Path, table: Path) -> int:
    """Photos and their captions in a table, as users have them; gives how many."""
    folder.mkdir(parents=True)
    with (EXAMPLES / "captions.csv").open(newline="") as file:
        said = list(csv.DictReader(file))
    rows = []
    for path in sorted(EXAMPLES.glob("*.jpg")):
        with Image.open(path) as opened:
            photo = opened.convert("RGB")
        width, height = photo.size
        for number, (left, top, right, bottom) in enumerate(WINDOWS):
            name = f"{path.stem}-{number}.jpg"
            photo.crop((int(left * width), int(top * height), int(right * width), int(bottom * height))).save(
                folder / name
            )
            rows += [(name, row["caption"]) for row in said if row["file"] == path.name]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("image", "caption"), *rows])
    return len({name for name, _ in rows})


def output_is_input(user: Journey) -> None:
    """What `caption --out` writes, `score`, `evaluate`, `audit` and `data inspect` read."""
    user.run("caption examples --out captioned --format csv,jsonl,json --quiet")
    tables = [f"captioned/captions.{kind}" for kind in ("csv", "jsonl", "json")]
    scores = [user.json(f"score --refs examples --hyps {table} --metrics bleu") for table in tables]
    user.expect(scores[0] == scores[1] == scores[2], "csv, jsonl and json are scored differently")
    for table in tables:
        user.expect("5 photos" in user.run(f"data inspect {table}"), f"{table} is not seen to hold 5 photos")
    user.expect(
        len(user.json("audit captioned/captions.csv --images .", codes=(0, 1))) == 5, "a caption is not audited"
    )
    found = user.json("evaluate --captions captioned/captions.jsonl --images . --metrics bleu")
    user.expect(found["metrics"]["BLEU-4"] > 99, "the model does not say what it said")


def photos_end_in_captions(user: Journey) -> None:
    """Training on own photos, and on own text; every command takes what is left."""
    user.run("train updown --images photos/ --captions captions.csv --out run stages.cross-entropy.epochs=3 --quiet")
    captions = user.json("caption --model run photos/")
    user.expect(len(captions) == user.photos, "a photo has no caption")
    held_out = user.json("evaluate run")
    left = json.loads((user.folder / "run" / "metrics.json").read_text())
    user.expect(held_out["metrics"]["CIDEr"] == left["CIDEr"], "evaluate measures something else than train")
    user.expect(held_out["photos"] < user.photos / 3, "evaluate measures on photos that were trained on")
    user.expect(user.json("evaluate run --captions captions.csv") == held_out, "the csv that train took means another")
    user.expect("updown" in user.run("models run"), "models does not tell the kind")
    user.expect("log p(caption" in user.run("likelihood photos/cat-0.jpg 'a cat' --model run"), "no likelihood")
    (user.folder / "begun").mkdir()
    shutil.copy(user.folder / "run" / "recipe.yaml", user.folder / "begun")
    user.expect("this run is not finished" in user.run("caption --model begun photos/", codes=(2,)), "not told")

    lines = [
        f"verily the {thing} doth rest upon the green grass beside a noble {other}"
        for thing in THINGS
        for other in THINGS
    ]
    (user.folder / "my.txt").write_text("\n".join(lines) + "\n")
    short = "stages.text.epochs=2 stages.text-reconstruction.epochs=2"
    user.run(f"train r2m --corpus my.txt --out style {short} --quiet")
    (said,) = user.json("caption --model style examples/cat.jpg")
    words = {word for line in lines for word in line.split()}
    user.expect(set(said["caption"].split()) <= words, "a style that speaks in other words")


THINGS = "cat dog man woman cup table car tree horse bird chair ball".split()


def terminal_habits(user: Journey) -> None:
    """What people type without thinking about it."""
    spaced, listed = (
        user.json(f"score --refs examples --hyps examples/said.json --metrics {names}")
        for names in ("bleu cider", "bleu,cider")
    )
    user.expect(spaced == listed, "a list with commas means another than one with spaces")
    user.expect("index" in user.run("search 'a cat' --store nowhere", codes=(2,)), "not told that there is no index")
    (named,) = user.json("caption examples/photographer.jpg --must-include Anna")
    user.expect("Anna" in named["caption"].split(), "a name that nobody trained on is not said")

    odd = user.folder / "odd"
    (odd / "below").mkdir(parents=True)
    shutil.copy(EXAMPLES / "cat.jpg", odd / "below" / "two\nlines.jpg")
    Image.new("RGB", (64, 64), "green").save(odd / "plain.png")
    printed = user.run("caption odd")
    user.expect(len([line for line in printed.splitlines() if "lines.jpg" in line]) == 1, "a name takes two lines")
    user.expect("a plain green picture" in printed, "one colour is taken for a photo of something")

    stop_early(user)
    printed = user.run("caption photos --out stopped --format csv,xmp")
    with (user.folder / "stopped" / "captions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    sidecars = list((user.folder / "photos").glob("*.xmp"))
    user.expect(len(rows) == len(sidecars) == user.photos, f"{len(rows)} rows and {len(sidecars)} sidecars")


def stop_early(user: Journey) -> None:
    """Press Ctrl-C while a folder is captioned."""
    command = [sys.executable, "-m", "sightline", "caption", "photos", "--out", "stopped", "--format", "csv,xmp"]
    with subprocess.Popen(command, cwd=user.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        time.sleep(2.5)  # in the midst of it, before it, or after it: the folder is whole in the end
        running.send_signal(signal.SIGINT)
        printed = running.communicate()[0].decode()
    user.expect("Traceback" not in printed, printed)


STEPS = (output_is_input, photos_end_in_captions, terminal_habits)


def main(arguments: Sequence[str]) -> int:
    """Go all the way, in the folder that is given or in a temporary one."""
    with tempfile.TemporaryDirectory() as temporary:
        user = Journey(Path(arguments[0] if arguments else temporary).resolve())
        for step in STEPS:
            print(step.__doc__, flush=True)
            try:
                step(user)
            except JourneyError as error:
                print(f"failed: {error}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
