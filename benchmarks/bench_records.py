"""A record of a benchmark, and how what each script prints as JSON becomes records: ours, the peer's, and the goal."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Report = dict[str, Any]


def machine() -> str:
    """What this runs on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{names[0] if names else platform.processor()}, {cores} cores, load {os.getloadavg()[0]:.1f}"


@dataclass
class Record:
    """One figure, and where, when and how it was measured."""

    name: str
    ours: float  # Sightline's figure
    peer: float | None  # the other's, from the same run; None where it is not installed or there is none
    unit: str
    against: str  # who the peer is, or which limit
    more: bool = False  # is better; otherwise less is
    goal: float | None = None  # what README or docs promise for `ours`
    machine: str = field(default_factory=machine)
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    command: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer."""
        if not self.peer or not self.ours:
            return None
        return self.ours / self.peer if self.more else self.peer / self.ours

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        return None if self.goal is None else self.ours >= self.goal if self.more else self.ours <= self.goal

    def as_json(self) -> Report:
        """What stands in the report."""
        return {**asdict(self), "ratio": self.ratio, "reached": self.reached}


def language_metrics(report: Report) -> Iterator[Record]:
    """CPU seconds of each metric; the goals are those of docs/metrics.md."""
    goals = {"PTB tokenizer": 0.13, "BLEU-1…4": 0.2, "ROUGE-L": 0.12, "CIDEr-D": 0.22, "METEOR": 2.8, "together": 3.4}
    for row in report["rows"]:
        whole = report["images"] == 5000  # the goals are for so many
        goal = goals.get(row["metric"]) if whole else None
        name = f"{row['metric']}, {report['images']:,} images"
        yield Record(name, row["sightline_s"], row["pycocoevalcap_s"], "CPU s", "pycocoevalcap", goal=goal)
        if row["torchmetrics_s"] is not None:
            yield Record(name, row["sightline_s"], row["torchmetrics_s"], "CPU s", "torchmetrics", goal=goal)


def meteor(report: Report) -> Iterator[Record]:
    """Whole processes, start to end."""
    for key, unit in (("cpu_s", "CPU s"), ("peak_mb", "MB")):
        peer = report["java"][key] if report["java"] else None
        yield Record(f"METEOR process, {report['images']:,} images", report["sightline"][key], peer, unit, "Java tool")


def spice(report: Report) -> Iterator[Record]:
    """Batches against one caption at a time: the Java tool has no models here."""
    ours, peer = report["batch_captions_a_second"], report["one_by_one_captions_a_second"]
    yield Record("SPICE, captions parsed", ours, peer, "captions/s", "one at a time", more=True)


def expert_judgements(report: Report) -> Iterator[Record]:
    """Agreement with people; the peers are the published values."""
    goals = {"SPICE (Sightline parser)": 0.468, "CIDEr-D": 0.439, "METEOR 1.5": 0.418}
    for row in (row for row in report["rows"] if row["published"]):
        name, against = f"{row['metric']}, Flickr8k experts", "coco-caption, as published"
        ours, goal = round(row["tau_c"], 3), goals.get(row["metric"])
        yield Record(name, ours, row["published"], "tau-c", against, more=True, goal=goal)


def scst_reward(report: Report) -> Iterator[Record]:
    """CIDEr-D as a reward."""
    for row in report["batches"]:
        name = f"CIDEr-D reward, {row['captions']} samples of {row['images']} images"
        yield Record(name, row["sightline_ms"], row["usual_ms"], "CPU ms", "the usual scorer")


def tokenizer(report: Report) -> Iterator[Record]:
    """Whole processes, from a file of captions to tokens."""
    for row in report["rows"]:
        peer = row["java"]["cpu_s"] if "java" in row else None
        name = f"PTB tokenizer process, {row['captions']:,} captions"
        yield Record(name, row["sightline"]["cpu_s"], peer, "CPU s", "CoreNLP")


def tagger(report: Report) -> Iterator[Record]:
    """Batches against one caption at a time."""
    ours, peer = report["again, captions/s"], report["one at a time, captions/s"]
    yield Record("part-of-speech tags", ours, peer, "captions/s", "one at a time", more=True)


def caption_speed(report: Report) -> Iterator[Record]:
    """Photos to captions beside BLIP-base and GIT-base, with the most threads that were measured."""
    threads, found = max(report["threads"].items(), key=lambda pair: int(pair[0]))
    blip = found.get("blip_per_s")
    name = f"captions, {threads} threads: "
    yield Record(f"{name}one photo", found["one_ms"], 1e3 / blip if blip else None, "ms", "BLIP-base", goal=60)
    yield Record(f"{name}a folder", found["photos_per_s"], blip, "photos/s", "BLIP-base", more=True, goal=40)
    cpu = found.get("blip_cpu_ms")
    yield Record(f"{name}CPU time in a folder", found["folder_cpu_ms"], cpu, "CPU ms a photo", "BLIP-base")
    git, git_cpu = found.get("git_per_s"), found.get("git_cpu_ms")
    yield Record(f"{name}a folder", found["photos_per_s"], git, "photos/s", "GIT-base", more=True, goal=40)
    yield Record(f"{name}CPU time in a folder", found["folder_cpu_ms"], git_cpu, "CPU ms a photo", "GIT-base")
    yield Record(f"{name}cold command", found["cold_s"], None, "s", "", goal=3)
    yield Record(f"{name}peak memory", found["peak_mb"], None, "MB", "", goal=900)


def busy_machine(report: Report) -> Iterator[Record]:
    """Threads that sleep while they wait, against threads that spin."""
    for place, row in report["ms"].items():
        yield Record(f"one photo, {place}", row["sleep"], row["spin"], "ms", "threads that spin")


def startup(report: Report) -> Iterator[Record]:
    """Waits before anything happens, beside the start of Python and of PyTorch."""
    yield Record("import sightline", report["import sightline"], report["import torch"], "s", "import torch")
    yield Record("sightline --help", report["sightline --help"], report["import torch"], "s", "import torch", goal=0.3)


def beam_decoding(report: Report) -> Iterator[Record]:
    """Beam search of Up-Down against a loop over images."""
    for row, goal in zip(report["models"], (24.5, None), strict=True):
        name = f"beam search, {row['captions']} captions"
        yield Record(name, row["sightline_ms"], row["usual_ms"], "ms an image", "a loop over images", goal=goal)


def training_step(what: str) -> Callable[[Report], Iterator[Record]]:
    """Steps against the usual implementation, for each way of projecting regions."""

    def records(report: Report) -> Iterator[Record]:
        for row in report["rows"]:
            name = f"{what}, regions projected {row['regions projected']}, {report['device']}"
            yield Record(name, row["sightline_ms"], row["usual_ms"], "ms a step", "the usual loop over words")

    return records


def jran_cost(report: Report) -> Iterator[Record]:
    """JRAN beside the same captioner without its relationships, as in the paper's Fig. 6a."""
    times = {row["model"]: row["step_ms"] for row in report["rows"]}
    for ours, peer in (("JRAN", "Baseline"), ("JRAN-Trans", "Sim-Trans")):
        yield Record(f"training step of {ours}", times[ours], times[peer], "ms", peer)


def attention_gradients(report: Report) -> Iterator[Record]:
    """Attention forwards and backwards; the peer is PyTorch's."""
    for row in report["rows"]:
        name = f"attention with gradients, {row['attention']}, {row['precision']}, {report['device']}"
        yield Record(name, row["ours_ms"], row["PyTorch_ms"], "ms", "PyTorch's attention")


def r2m_training(report: Report) -> Iterator[Record]:
    """R²M whole, beside the paper's time."""
    ours, peer = report["all steps, minutes"], report["paper, minutes"]
    yield Record(f"R²M trained whole, {report['device']}", ours, peer, "minutes", "the paper, on its GPU")


def scan_similarity(report: Report) -> Iterator[Record]:
    """SCAN's similarity of all pairs."""
    name = f"SCAN, {report['images']:,} photos × {report['captions']:,} captions, {report['device']}"
    goal = 10 if (report["images"], report["captions"]) == (5000, 25000) else None
    yield Record(name, report["sightline_seconds"], report["usual_seconds"], "s", "a loop over captions", goal=goal)


def gpu(report: Report) -> Iterator[Record]:
    """Shares of what a GPU could do at most; SCAN beside the usual loop. The machine is the one that printed it."""
    where: Report = {"machine": f"{report['device']}, torch {report['torch']}", "date": report["date"]}
    for row in report["rows"]:
        ours, name = row["images_per_s"], f"{row['name']}, {row['images']} images at once"
        yield Record(name, ours, row["roofline_images_per_s"], "images/s", "the roofline", more=True, **where)
        limit = row["operators_images_per_s"]
        yield Record(name, ours, limit, "images/s", "the sum of its operators' limits", more=True, **where)
    scan = report["scan"]
    name = f"SCAN, {scan['images']:,} photos × {scan['captions']:,} captions"
    ours, goal = scan["sightline_seconds"], 10 if (scan["images"], scan["captions"]) == (5000, 25000) else None
    yield Record(name, ours, scan["usual_seconds"], "s", "a loop over captions", goal=goal, **where)
    yield Record(name, ours, scan["roofline_seconds"], "s", "the roofline", goal=goal, **where)


def index_million(report: Report) -> Iterator[Record]:
    """Approximate search beside comparing every vector."""
    goal = 10.0 if report["vectors"] == 1_000_000 else None
    name, against = f"search among {report['vectors']:,} vectors", "every vector compared"
    ann, exact = report["ann"], report["exact"]
    yield Record(f"{name}, median", ann["p50_ms"], exact["p50_ms"], "ms", against, goal=goal)
    yield Record(f"{name}, recall@10", ann["recall_at_10"], exact["recall_at_10"], "", against, more=True, goal=0.97)
    built = report["build"]
    yield Record(f"{name}, on disk", built["gigabytes"], built["gigabytes_of_vectors"], "GB", "the vectors alone")


def store(report: Report) -> Iterator[Record]:
    """The feature store beside a folder of npz files."""
    rates = report["scenes_per_s"]
    for ours, theirs in report["pairs"]:
        yield Record(f"feature {ours}", rates[ours], rates[theirs], "scenes/s", theirs, more=True)
    whole = report["whole"]
    ours, peer = whole["in order"]["peak_mb"], whole["safetensors"]["peak_mb"]
    yield Record(f"reading {report['gigabytes']:.0f} GB in order, peak memory", ours, peer, "MB", "safetensors")


def memory(report: Report) -> Iterator[Record]:
    """Peak memory over a large file."""
    ours, peer = (numbers["peak_mb"] for numbers in list(report.values())[:2])
    against = list(report)[1]
    yield Record(f"peak memory, {next(iter(report))}", ours, peer, "MB", against)


def tsv(report: Report) -> Iterator[Record]:
    """Bottom-up TSV features."""
    ms = report["ms_per_image"]
    yield Record("reading TSV features", ms["sightline"], ms["usual loop"], "ms an image", "the usual loop")


def ray_driver(report: Report) -> Iterator[Record]:
    """What the one process that writes can take; nobody else has such a process."""
    goals = {"captions a second": 888, "rows a second, exact": 1366, "rows a second, lance": 9470}
    for name, goal in goals.items():
        yield Record(f"job: {name}", report[name], None, "photos/s", "", more=True, goal=goal)


def serve_load(report: Report) -> Iterator[Record]:
    """The server beside the direct call."""
    direct = max(value for value in report["direct"].values() if isinstance(value, int | float))
    name = f"server, {report['clients']} clients"
    yield Record(name, report["photos a second"], direct, "photos/s", "the direct loop", more=True)


def page_photos(report: Report) -> Iterator[Record]:
    """The page in a browser, which shares the machine with the server."""
    count = round(report["photos"])
    yield Record(f"page, the first caption of {count} photos", report["first_s"], None, "s", "")
    yield Record(f"page, the last caption of {count} photos", report["last_s"], None, "s", "")


def scaling(report: Report) -> Iterator[Record]:
    """Exponents of time; 1 is proportional."""
    for name, curve in report.items():
        first, last = curve["sizes"][0], curve["sizes"][-1]
        what = f"time against {name}, {first:,} to {last:,}: exponent"
        yield Record(what, round(curve["time_exponent"], 3), 1.0, "", "proportional", goal=1.1)
