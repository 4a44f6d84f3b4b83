"""The output bias of new captioners: log word frequencies, by naive counting, and what they are good for."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from captioner_contract import GRID_WIDTH, REGION_WIDTH, WORDS, random_scenes
from learning_samples import DATA, sentences, write_dataset, write_recipe
from recipe_samples import small
from sightline.checkpoint.model_checkpoint import load
from sightline.errors import ConfigError
from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.end_to_end import end_to_end
from sightline.models.jran import JRANConfig
from sightline.models.jran_trans import JRANTransConfig
from sightline.models.neuraltalk2 import NeuralTalk2Config
from sightline.models.r2m import R2MConfig
from sightline.models.scan import SCANConfig
from sightline.models.scene_trans import SceneTransConfig
from sightline.models.sim_trans import SimTransConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsrn import VSRNConfig
from sightline.text.vocabulary import END, PAD, START, UNK
from sightline.training.data import build_data
from sightline.training.launch import _model, launch
from sightline.training.new_model import NEVER, log_frequencies, start_output_bias
from sightline.training.recipe import read_recipe
from sightline.vision.concept_tokens import token_names
from sightline.vision.grid_encoder import GridEncoder

torch.set_num_threads(1)

CAPTIONS = torch.tensor([[START, 5, 6, 5, END], [START, 7, UNK, END, PAD], [START, 5, END, PAD, PAD]])
TRANSFORMERS = (SimTransConfig, JRANTransConfig, SceneTransConfig)


def test_the_frequency_of_an_id_is_counted_over_words_unknowns_and_ends():
    counts = Counter(id for row in CAPTIONS.tolist() for id in row[1:] if id != PAD)
    found = log_frequencies(CAPTIONS, 9)
    for id, count in counts.items():
        assert float(found[id]) == pytest.approx(math.log(count / 9), abs=1e-6)
    assert counts[END] == 3
    assert float(found[8]) == pytest.approx(math.log(1 / 9), abs=1e-6)  # never seen: as if it were once
    for id in (PAD, START):
        assert float(found[id]) == pytest.approx(math.log(NEVER / 9), abs=1e-6)
    assert found.isfinite().all()


WRITERS = [
    *(kind() for kind in (NeuralTalk2Config, AdaptiveAttentionConfig, UpDownConfig, JRANConfig, R2MConfig, VSRNConfig)),
    *(kind(output_bias=True) for kind in TRANSFORMERS),
]


@pytest.mark.parametrize("config", WRITERS, ids=lambda config: config.kind)
def test_every_captioner_starts_at_log_frequencies(config):
    model = small(config).build(WORDS).eval()
    start_output_bias(model, CAPTIONS)
    writer = model.captioner if isinstance(config, VSRNConfig) else model
    hidden = torch.zeros(1, _width(writer))
    expected = log_frequencies(CAPTIONS, WORDS)
    torch.testing.assert_close(writer.predict(hidden)[0], expected)
    start_output_bias(model, None)
    assert (writer.predict(hidden) == 0).all()


def _width(writer):
    """Numbers that a word is predicted from."""
    layer = next(getattr(writer, name) for name in ("output", "out") if hasattr(writer, name))
    return writer.config.hidden_size if layer is None else layer.in_features


@pytest.mark.parametrize("config", [kind() for kind in TRANSFORMERS], ids=lambda config: config.kind)
def test_fairseqs_decoder_has_no_bias_unless_asked_for(config):
    model = small(config).build(WORDS)
    assert model.output_bias() is None
    before = {name: part.clone() for name, part in model.state_dict().items()}
    assert "bias" not in before
    start_output_bias(model, CAPTIONS)
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())


def test_a_matcher_without_a_captioner_is_left_alone_and_one_that_sees_finds_its_own():
    start_output_bias(small(SCANConfig()).build(WORDS), CAPTIONS)
    eyes = GridEncoder("lite0", 32)
    for config in (UpDownConfig(), VSRNConfig()):
        blind = small(config).build(WORDS)
        start_output_bias(end_to_end(blind, eyes), CAPTIONS)
        writer = blind.captioner if isinstance(config, VSRNConfig) else blind
        assert torch.equal(writer.output_bias(), log_frequencies(CAPTIONS, WORDS))


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_DATA", str(write_dataset(tmp_path / "tiny")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def untrained(recipe, root, started=None):
    """The model that training begins with."""
    data = build_data(recipe.data, recipe.model, recipe.stage_list(), base=root / "tiny")
    return _model(recipe, data, started, find=lambda name: started), data


def test_training_from_scratch_starts_at_the_frequencies_of_the_training_captions(root):
    recipe = read_recipe(write_recipe(root / "r.yaml"), "short")
    model, data = untrained(recipe, root)
    counts: Counter[str] = Counter()
    for i in range(13):  # photos of train
        for text in sentences(i):
            counts.update([*text.lower().replace(".", "").split(), "<end>"])
    assert len(data.pools["train"]) == 13
    for word, count in counts.items():
        id = END if word == "<end>" else data.vocabulary.id(word)
        assert model.output.bias[id].item() == pytest.approx(math.log(count / counts.total()), abs=1e-5), word
    assert not untrained(replace(recipe, output_bias="zero"), root)[0].output.bias.any()


def test_a_captioner_of_names_knows_from_the_start_which_words_they_are(root):
    recipe = read_recipe(write_recipe(root / "r.yaml"), "short")
    config = SceneTransConfig(
        region_width=6, hidden_size=8, heads=2, layers=1, ffn_size=8, sources="regions", concepts=len(token_names())
    )
    model, data = untrained(replace(recipe, model=config), root)
    words = {data.vocabulary.word(id) for id in model.names.words.flatten().tolist() if id != PAD}
    assert words == {word for word in data.vocabulary.words if word in token_names()} != set()
    with pytest.raises(ConfigError, match=f"`model.concepts` is 7.* set it to {len(token_names())}"):
        untrained(replace(recipe, model=replace(config, concepts=7)), root)


def test_r2m_starts_at_the_frequencies_of_its_corpus(root):
    lines = ["a dog is on the grass near a cat .", "the horse and the dog look at a bus ."]
    (root / "tiny" / "corpus.txt").write_text("\n".join(lines * 3 + ["a dog runs over there to the old man ."]) + "\n")
    stage = {"objective": {"kind": "r2m-text"}, "batch": {"pool": "corpus", "captions": 1, "size": 2}}
    data = {**DATA, "rule": "r2m", "corpus": "corpus.txt", "vocabulary": "corpus"}
    recipe = read_recipe(
        write_recipe(root / "r.yaml", model={"kind": "r2m", "vector_width": 6}, data=data, stages={"xe": stage}), "long"
    )
    model, read = untrained(recipe, root)
    ids = [id for row in read.pools["corpus"].texts.ids[:, 1:].tolist() for id in row if id != PAD]
    assert "train" in read.pools
    for id, count in Counter(ids).items():
        assert model.output.bias[id].item() == pytest.approx(math.log(count / len(ids)), abs=1e-5)


def test_a_model_that_starts_from_weights_keeps_its_bias(root):
    recipe = read_recipe(write_recipe(root / "r.yaml"), "short")
    launch(recipe, root / "one", "cpu")
    held = load(root / "one" / "model.safetensors")
    model, _ = untrained(replace(recipe, start="one"), root, held)
    assert torch.equal(model.output.bias, held.model.output.bias)


def test_the_usual_start_has_no_part_in_a_recipes_fingerprint(root):
    recipe = read_recipe(write_recipe(root / "r.yaml"), "short")
    assert recipe.output_bias == "frequencies"
    assert replace(recipe, output_bias="zero").fingerprint() != recipe.fingerprint()


def test_a_captioner_learns_faster_from_frequencies():
    """Words as rare as in real captions (Zipf), and an image that tells nothing: frequencies are all there is to learn.

    Ten steps from zero do not reach what log frequencies are from the first.
    """
    generator = torch.Generator().manual_seed(0)
    words = 400
    shares = 1 / torch.arange(1, words - 3, dtype=torch.float)
    captions = torch.multinomial(shares, 64 * 10, replacement=True, generator=generator).view(64, 10) + 4
    captions = torch.cat([torch.full((64, 1), START), captions, torch.full((64, 1), END)], 1)
    scenes = random_scenes(64)
    sizes = {"region_width": REGION_WIDTH, "grid_width": GRID_WIDTH}
    losses = {}
    for name, counted in (("zero", None), ("frequencies", captions)):
        torch.manual_seed(0)
        model = replace(small(JRANConfig()), **sizes).build(words)
        start_output_bias(model, counted)
        optimiser = torch.optim.Adam(model.parameters(), lr=5e-4)
        for _ in range(10):
            loss = -model.log_prob(model.encode(scenes), captions).mean() / 11
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        losses[name] = float(loss.detach())
    assert losses["frequencies"] < losses["zero"] - 0.5
