"""The spine of `sightline caption photo.jpg`: the functions one reads to follow a photo to its caption.

A hop is a function of ours that is on the call stack, from `main` on, at one of three moments: when Pillow is asked for
the photo's pixels (in a thread, so the stack that handed the photo to the thread counts too), when the vision model
looks at it, and when the captioner makes its first step. Each function counts once. `docs/architecture.md` lists them.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 22
PROGRAM = """
import sys, threading
import sightline
from pathlib import Path
from sightline.cli.commands import main
OURS = str(Path(sightline.__file__).parent)
spine, seen = {}, set()

def note(moment, frame):
    if moment in seen:
        return
    seen.add(moment)
    stack = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(OURS):
            stack.append(frame.f_code.co_filename[len(OURS) + 1:] + " " + frame.f_code.co_qualname)
        frame = frame.f_back
    spine.update(dict.fromkeys(reversed(stack)))

def profile(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_qualname == "ThreadPoolExecutor.submit":
        note("read", frame)
    elif event == "c_call" and "PIL" in code.co_filename and argument.__name__ == "decode":
        note("decode", frame)
    elif event == "call" and code.co_qualname in ("Detector.forward", "Captioner.step"):
        note(code.co_qualname, frame)

threading.setprofile(profile)
sys.setprofile(profile)
assert main(["caption", sys.argv[1]]) == 0
sys.setprofile(None)
assert len(seen) == 4, seen
print(*spine, sep="\\n", file=sys.stderr)
"""


def test_a_photo_comes_to_its_caption_in_few_hops_which_the_docs_list():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, ROOT / "examples/cat.jpg"], capture_output=True, text=True, check=True
    )
    spine = ran.stderr.splitlines()
    assert spine[0] == "cli/commands.py main"
    assert len(spine) <= MOST, spine
    walk = (ROOT / "docs/architecture.md").read_text().partition("## A photo to its caption")[2].partition("\n## ")[0]
    listed = re.findall(r"^ *\d+\. `([\w/.]+ [\w.]+)`", walk, re.MULTILINE)
    assert sorted(listed) == sorted(spine)
