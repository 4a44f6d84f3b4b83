"""`sightline serve` under mixed load for as long as you like: does memory stay flat, is every answer expected?

    python benchmarks/soak.py --minutes 30 [--photos FOLDER] [--plot soak.png]

Eight good clients caption, search, ground and audit, one request at a time each. Beside them one sends bodies that must
be refused, one leaves before its answer, and one holds sockets open with half a request. A good answer is 200 and about
the photo that was sent, or 503 with Retry-After; that to a bad body is its 4xx. Anything else is an error, and so is a
line in the server's log. Exit code 1 if there was one, or if memory grew by more than a tenth after the first quarter.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench_records import machine
from speed_material import make_photos

PAUSE = 0.25  # seconds between two requests of a client: load that a desk has, not a race
HALF_OPEN = 20  # sockets that are held at once
EVERY = 2.0  # seconds between two looks at memory
SENTENCES = ("a dog on a beach", "two people and a red car", "a cat", "a cup of coffee on a table", "no such thing")
GROWTH = 1.1


@dataclass
class Tally:
    """What the clients met, and what the server took."""

    began: float = field(default_factory=time.monotonic)
    waits: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    errors: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    left: int = 0
    held: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def error(self, what: str) -> None:
        """Note something that must not be."""
        with self.lock:
            self.errors.append(f"{self.now():.0f} s: {what}")


Ask = tuple[str, dict[str, Any], set[int], Callable[[dict[str, Any]], bool]]
"""An address, what httpx sends there, the statuses that are right, and whether a 200 is about what was sent."""


def upload(path: Path) -> tuple[str, bytes]:
    return path.name, path.read_bytes()


def caption(chance: random.Random, photos: list[Path]) -> Ask:
    chosen = chance.sample(photos, chance.choice((1, 1, 1, 2, 4)))
    data = {"beam": chance.choice((1, 3, 3)), "length": chance.choice(("short", "normal", "normal", "long"))}
    right = [path.name for path in chosen]

    def check(told: dict[str, Any]) -> bool:
        return [one["path"] for one in told["captions"]] == right and all(one["caption"] for one in told["captions"])

    return "/v1/caption", {"files": [("photos", upload(path)) for path in chosen], "data": data}, {200}, check


def search(chance: random.Random, photos: list[Path]) -> Ask:
    k = chance.choice((1, 5, 10))
    if chance.random() < 0.3:
        sent: dict[str, Any] = {"files": {"photo": upload(chance.choice(photos))}, "data": {"k": k}}
    else:
        sent = {"json": {"text": chance.choice(SENTENCES), "k": k, "explain": chance.random() < 0.3}}
    # of words that the model never learned nothing is found
    return "/v1/search", sent, {200}, lambda told: len(told["hits"]) == min(k, len(photos)) or bool(told["unknown"])


def ground(chance: random.Random, photos: list[Path]) -> Ask:
    path, sentence = chance.choice(photos), chance.choice(SENTENCES)
    sent = {"files": {"photo": upload(path)}, "data": {"sentence": sentence}}
    return "/v1/ground", sent, {200}, lambda told: (told["path"], told["sentence"]) == (path.name, sentence)


def audit(chance: random.Random, photos: list[Path]) -> Ask:
    path = chance.choice(photos)
    sent = {"files": [("photos", upload(path))], "data": {"captions": list(SENTENCES[:2])}}
    return "/v1/audit", sent, {200}, lambda told: len(told["audits"]) == 2


def refused(chance: random.Random, photos: list[Path]) -> Ask:
    """A request that no server may take."""
    whole = chance.choice(photos).read_bytes()
    cut = whole[: chance.randrange(10, len(whole) // 2)]
    form = "multipart/form-data; boundary=x"
    bodies: list[tuple[str, dict[str, Any], set[int]]] = [
        ("/v1/caption", {"files": {"photos": ("a.jpg", b"<html>404</html>")}}, {422}),
        ("/v1/caption", {"files": {"photos": ("a.jpg", cut)}}, {200, 422}),
        ("/v1/caption", {"files": {"photos": ("a.jpg", b"")}}, {422}),
        ("/v1/caption", {"files": {"photos": ("a.jpg", whole)}, "data": {"length": "99"}}, {422}),
        ("/v1/caption", {"files": {"photos": ("a.jpg", whole)}, "data": {"beam": "many"}}, {422}),
        ("/v1/caption", {"content": b"--x\r\nnothing", "headers": {"content-type": form}}, {400, 422}),
        ("/v1/search", {"content": b"{", "headers": {"content-type": "application/json"}}, {400}),
        ("/v1/search", {"json": {"text": "a dog", "k": 10**9}}, {422}),
        ("/v1/search", {"content": b"text", "headers": {"content-type": "text/plain"}}, {415}),
        ("/v1/search", {"json": {"text": "a dog"}, "headers": {"authorization": "Bearer wrong"}}, {401}),
        ("/v1/search", {"json": {"text": "a dog"}, "headers": {"origin": "http://evil.example"}}, {403}),
        ("/v1/photos/" + "0" * 32 + "/ground", {"json": {"sentence": "a dog"}}, {404}),
        ("/v1/nowhere", {"json": {}}, {404}),
    ]
    address, sent, statuses = chance.choice(bodies)
    return address, sent, statuses, lambda told: "captions" in told


KINDS: dict[str, tuple[Callable[[random.Random, list[Path]], Ask], int]] = {
    "caption": (caption, 3),
    "search": (search, 2),
    "ground": (ground, 2),
    "audit": (audit, 1),
    "refused": (refused, 1),
}


def client(kind: str, address: str, token: str, photos: list[Path], until: float, seed: int, tally: Tally) -> None:
    """Ask, check and pause, again and again."""
    chance, make = random.Random(f"{kind} {seed}"), KINDS[kind][0]
    head = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, timeout=120, trust_env=False, headers=head) as ask:
        while time.monotonic() < until:
            path, sent, statuses, check = make(chance, photos)
            began = time.monotonic()
            try:
                answer = ask.post(path, **sent)
            except httpx.HTTPError as error:
                tally.error(f"{kind}: {type(error).__name__} {error}")
                continue
            spent = time.monotonic() - began
            busy = answer.status_code == 503 and "retry-after" in answer.headers
            right = busy or answer.status_code in statuses
            if not right or (answer.status_code == 200 and not check(answer.json())):
                tally.error(f"{kind}: {path} {answer.status_code} {answer.text[:200]}")
            with tally.lock:
                tally.statuses[kind][answer.status_code] += 1
                if not busy:
                    tally.waits[kind].append((tally.now(), spent))
            time.sleep(float(answer.headers["retry-after"]) if busy else PAUSE * chance.uniform(0.5, 1.5))


def leave(address: str, token: str, photos: list[Path], until: float, tally: Tally) -> None:
    """Ask for captions of eight photos, and leave before they can be there."""
    chance = random.Random("leave")
    head = {"Authorization": f"Bearer {token}"}
    while time.monotonic() < until:
        seconds = httpx.Timeout(30, read=chance.uniform(0.001, 0.05))
        files = [("photos", upload(path)) for path in chance.sample(photos, 8)]
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(base_url=address, timeout=seconds, trust_env=False, headers=head) as ask,
        ):
            ask.post("/v1/caption", files=files)
        with tally.lock:
            tally.left += 1
        time.sleep(2)


def hold(address: str, until: float, tally: Tally) -> None:
    """Keep sockets with half a request open; those that the server closes are opened again."""
    host, _, port = address.removeprefix("http://").partition(":")
    halves = (
        b"GET / HTTP/1.1\r\nHo",
        b"",
        b"POST /v1/caption HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40000000\r\n\r\n--x",
    )
    chance, sockets = random.Random("hold"), list[socket.socket]()
    with contextlib.ExitStack() as stack:
        while time.monotonic() < until:
            while len(sockets) < HALF_OPEN:
                one = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
                one.sendall(chance.choice(halves))
                one.setblocking(False)
                sockets.append(one)
                tally.held += 1
            sockets = [one for one in sockets if is_open(one)]
            time.sleep(0.5)


def is_open(one: socket.socket) -> bool:
    try:
        while one.recv(65536):
            pass  # 408, before it closes
    except BlockingIOError:
        return True
    except OSError:
        pass
    one.close()
    return False


def watch(pid: int, until: float, tally: Tally) -> None:
    """Write down the server's resident memory and its descriptors."""
    with contextlib.suppress(FileNotFoundError):
        while time.monotonic() < until:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
            tally.memory.append((tally.now(), kilobytes / 1024))
            tally.descriptors.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
            time.sleep(EVERY)
        return
    tally.error("the server is gone")


@contextlib.contextmanager
def server(options: argparse.Namespace, store: Path, tally: Tally) -> Iterator[tuple[int, str, str]]:
    """Its process, address and token; at the end it must stop when it is asked to, and have said nothing else."""
    common = ["--device", "cpu", *(["--model", str(options.model)] if options.model else [])]
    run = [sys.executable, "-m", "sightline"]
    subprocess.run([*run, "index", str(store.parent / "photos"), "--store", str(store), "--quiet", *common], check=True)
    serve = ["serve", "--port", "0", "--json", "--store", str(store), "--threads", str(options.threads)]
    with (
        (store.parent / "log").open("w+") as log,
        subprocess.Popen([*run, *serve, *common], stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield process.pid, told["address"].partition("/?")[0].rstrip("/"), told["token"]
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=60)
        finally:
            process.kill()
        log.seek(0)
        said = log.read()
        if code or said != "Stopped.\n":
            tally.error(f"the server ended with {code}, and its log with {said[-2000:]}")


def soak(options: argparse.Namespace, folder: Path) -> Tally:
    source = options.photos
    photos = sorted(source.glob("*.jpg"))[: options.count] if source else []
    (folder / "photos").mkdir()
    for path in photos:
        (folder / "photos" / path.name).write_bytes(path.read_bytes())
    photos = photos or make_photos(folder / "photos", options.count, (640, 480))
    tally = Tally()
    with server(options, folder / "index", tally) as (pid, address, token):
        tally.began = time.monotonic()
        until = tally.began + 60 * options.minutes
        threads = [
            threading.Thread(target=client, args=(kind, address, token, photos, until, seed, tally))
            for kind, (_, count) in KINDS.items()
            for seed in range(count)
        ]
        threads.append(threading.Thread(target=leave, args=(address, token, photos, until, tally)))
        threads.append(threading.Thread(target=hold, args=(address, until, tally)))
        threads.append(threading.Thread(target=watch, args=(pid, until, tally)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return tally


def percentile(values: list[float], share: float) -> float | None:
    """The value that `share` of all do not exceed.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 2) if values else None


def report(tally: Tally, options: argparse.Namespace) -> dict[str, Any]:
    """Figures of a run."""
    waits = {kind: [wait for _, wait in some] for kind, some in tally.waits.items()}
    good = [wait for kind, some in waits.items() if kind != "refused" for wait in some]
    megabytes = [value for _, value in tally.memory]
    early, late = (percentile(part, 0.5) for part in (quarter(megabytes, 1), quarter(megabytes, 3)))
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "minutes": options.minutes,
        "threads": options.threads,
        "answers": {kind: dict(sorted(count.items())) for kind, count in tally.statuses.items()},
        "clients that left": tally.left,
        "half-open sockets": tally.held,
        "errors": len(tally.errors),
        "wait": {"median": percentile(good, 0.5), "p99": percentile(good, 0.99), "most": percentile(good, 1)},
        "p99 by kind": {kind: percentile(some, 0.99) for kind, some in waits.items()},
        "megabytes": {"second quarter": early, "last quarter": late, "most": round(max(megabytes))},
        "descriptors": {"first": tally.descriptors[0], "last": tally.descriptors[-1], "most": max(tally.descriptors)},
    }


def quarter(values: list[float], number: int) -> list[float]:
    return values[number * len(values) // 4 : (number + 1) * len(values) // 4]


def draw(tally: Tally, figures: dict[str, Any], path: Path) -> None:
    """Memory, waits and answers against time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6.5), layout="constrained")
    memory, wait, answers = figure.subplots(3, sharex=True)
    memory.plot([at / 60 for at, _ in tally.memory], [value for _, value in tally.memory], color="C0")
    memory.set(ylabel="memory, MB", ylim=(0, None))
    bin = max(15.0, figures["minutes"] * 60 / 30)  # seconds
    for kind, some in tally.waits.items():
        if kind == "refused":
            continue
        bins = defaultdict(list)
        for at, spent in some:
            bins[int(at // bin)].append(spent)
        places = sorted(bins)
        wait.plot([(b + 0.5) * bin / 60 for b in places], [percentile(bins[b], 0.99) for b in places], label=kind)
    wait.set(ylabel="p99 wait, s", ylim=(0, None))
    wait.legend(ncols=4, loc="upper right", frameon=False)
    ends = sorted(at for some in tally.waits.values() for at, _ in some)
    answers.plot([at / 60 for at in ends], range(1, len(ends) + 1), color="C2", label="answers")
    answers.axhline(len(tally.errors), color="C3", label=f"errors: {len(tally.errors)}")
    answers.set(ylabel="answers so far", xlabel="minutes", ylim=(0, None))
    answers.legend(loc="upper left", frameon=False)
    figure.suptitle(f"sightline serve under mixed load, {figures['date']}", fontsize="medium")
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--model", type=Path, help="a model file, instead of the one that comes with Sightline")
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs; by default made from the examples")
    parser.add_argument("--count", type=int, default=48, help="photos that are sent, and indexed")
    parser.add_argument("--threads", type=int, default=1, help="of the server")
    parser.add_argument("--plot", type=Path, help="draw memory, waits and answers here (needs matplotlib)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        tally = soak(options, Path(folder))
    figures = report(tally, options)
    print(json.dumps(figures, indent=1))
    for error in tally.errors[:20]:
        print(error, file=sys.stderr)
    if options.plot:
        draw(tally, figures, options.plot)
    memory = figures["megabytes"]
    flat = memory["last quarter"] <= GROWTH * memory["second quarter"]
    return 0 if flat and not tally.errors else 1


if __name__ == "__main__":
    sys.exit(main())
