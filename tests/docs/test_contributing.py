"""The examples of CONTRIBUTING.md are whole files that work, and the paths it names are there."""

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import torch

import sightline
from captioner_contract import VECTOR_WIDTH, WORDS, CaptionerContract
from objective_samples import descend, make_batch, make_context, make_pool, mean_loss, updown
from sightline.data.format import Probe
from sightline.decoding.decode import decode
from sightline.decoding.strategies import Beam
from sightline.errors import DataError
from sightline.text.vocabulary import PAD
from sightline.training.objectives.cross_entropy import CrossEntropyConfig

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def example(title: str) -> ModuleType:
    """The example of a section, imported as the file it stands for."""
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert section is not None
    (code,) = re.findall(r"^```python\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)
    name = "contributed_" + title.replace(" ", "_").lower()
    module = ModuleType(name)
    sys.modules[name] = module  # where dataclasses look for the types of their fields
    exec(compile(code, f"CONTRIBUTING.md, {title}", "exec"), module.__dict__)
    return module


@pytest.fixture(autouse=True)
def _forget_examples():
    yield
    for name in [name for name in sys.modules if name.startswith("contributed_")]:
        del sys.modules[name]


def test_every_path_that_is_named_is_there():
    package = Path(sightline.__file__).parent
    named = {path for path in re.findall(r"`([\w./<>-]+)`", TEXT) if "/" in path and "<" not in path}
    assert {"data/formats.py", "models/model_configs.py", "training/objectives/__init__.py"} <= named
    assert [path for path in sorted(named) if not (package / path).exists() and not (ROOT / path).exists()] == []


def test_the_format_reads_its_lines_and_reports_a_broken_one(tmp_path):
    format = example("Add a format").FORMAT
    whole = tmp_path / "a.pipe"
    whole.write_text("1|a dog runs\n2|a cat\n1|a brown dog\n")
    assert format.matches(Probe(whole))
    found = format.captions(whole)
    assert {photo.id: [s.text for s in photo.sentences] for photo in found.photos} == {
        "1": ["a dog runs", "a brown dog"],
        "2": ["a cat"],
    }
    broken = tmp_path / "b.pipe"
    broken.write_text("1|a dog runs\na cat\n")
    with pytest.raises(DataError, match="line 2"):
        format.captions(broken)
    assert format.inspect(broken).problem_count == 1


def test_the_metric_counts_words():
    metric = example("Add a metric").MeanLength()
    metric.update({"1": "a dog runs", "2": "a cat"}, {"1": ["a dog"], "2": ["a cat"]})
    scores = metric.compute()
    assert scores.corpus == {"length": (3 + 2) / 2}
    assert scores.per_image == {"1": {"length": 3.0}, "2": {"length": 2.0}}


class TestBag(CaptionerContract):
    """The model keeps the contract, but for what a bag of words cannot do."""

    test_it_overfits_fifty_captions_and_says_them = None  # it does not know the order of words
    test_saved_and_loaded_it_is_bit_identical = None  # it is not in `models/model_configs.py`

    def build(self):
        return example("Add a model").BagConfig(vector_width=VECTOR_WIDTH, hidden_size=16).build(WORDS)


def test_the_model_learns_which_words_belong_to_which_picture():
    torch.manual_seed(0)
    model = example("Add a model").BagConfig(vector_width=VECTOR_WIDTH, hidden_size=16).build(WORDS)
    pool = make_pool(6)
    objective = CrossEntropyConfig().build(make_context(pool))
    batch = make_batch(pool, objective, size=6)
    descend(model, objective, batch, steps=300, rate=0.05)
    counts = torch.zeros(6, WORDS)  # the best that a bag can do: how often each word occurs with its picture
    words = batch.texts.ids[:, 1:]
    for row, ids in enumerate(words):
        for id in ids[ids != PAD]:
            counts[row // 2, id] += 1
    shares = counts / counts.sum(1, keepdim=True)
    entropy = -(counts * shares.clamp(min=1e-9).log()).sum() / counts.sum()
    assert mean_loss(model, objective, batch) == pytest.approx(float(entropy), abs=0.02)


@torch.no_grad()
def test_the_model_writes_captions_by_beam_search():
    torch.manual_seed(0)
    model = example("Add a model").BagConfig(vector_width=VECTOR_WIDTH, hidden_size=16).build(WORDS).eval()
    memory = model.encode(make_pool(3).scenes.scenes)
    assert len(decode(model, memory, Beam(2)).words) == 3


def test_the_objective_is_its_formula_and_learns():
    pool, model = make_pool(), updown()
    objective = example("Add an objective").FocalConfig(gamma=2.0).build(make_context(pool))
    batch = make_batch(pool, objective)
    log_probs = model(model.encode(batch.scenes), batch.texts.ids).log_probs
    total, count = 0.0, 0
    for row, ids in enumerate(batch.texts.ids[:, 1:].tolist()):
        for step, id in enumerate(ids):
            if id != PAD:
                p = log_probs[row, step, id].exp().item()
                total, count = total - (1 - p) ** 2 * torch.tensor(p).log().item(), count + 1
    before = mean_loss(model, objective, batch)
    assert before == pytest.approx(total / count, rel=1e-4)
    descend(model, objective, batch, steps=50)
    assert mean_loss(model, objective, batch) < before / 2


def test_every_make_target_and_every_mark_that_is_named_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    project = (ROOT / "pyproject.toml").read_text()
    texts = [project, TEXT, (ROOT / "README.md").read_text(), *(page.read_text() for page in ROOT.glob("docs/*.md"))]
    named = {target for text in texts for target in re.findall(r"`make ([a-z-]+)", text)}
    assert "test" in named
    assert named <= targets
    marks = tomllib.loads(project)["tool"]["pytest"]["ini_options"]["markers"]
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("**/*.py"))
    assert [mark for mark in marks if f"pytest.mark.{mark.partition(':')[0]}" not in tests] == []
