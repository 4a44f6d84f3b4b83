"""How likely a captioner finds a sentence: the call and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioner_contract import GRID_WIDTH, REGION_WIDTH, VECTOR_WIDTH, WORDS, random_scenes
from sightline.checkpoint.model_checkpoint import Checkpoint, save
from sightline.cli.commands import main
from sightline.decoding.likelihood import likelihood, save_attention
from sightline.errors import CountError
from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.end_to_end import end_to_end
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.scene import Scene
from sightline.text.vocabulary import END, START, UNK, Vocabulary
from sightline.vision.feature_store import FeatureStore
from sightline.vision.grid_encoder import GridEncoder
from sightline.vision.images import read_pixels

VOCABULARY = Vocabulary(["a", "man", "on", "dog", "the", *(f"word{i}" for i in range(WORDS - 9))])
SENTENCES = [["a", "dog"], ["the", "man", "on", "a", "dog"], ["zebra"], ["a"], ["dog", "man"], ["on", "the"]]


def updown():
    torch.manual_seed(0)
    return UpDownConfig(region_width=REGION_WIDTH, word_size=8, hidden_size=8, attention_size=8).build(WORDS).eval()


def test_it_is_the_sum_over_words_and_end_by_stepping():
    model, scenes = updown(), random_scenes(3)
    found = likelihood(model, scenes, VOCABULARY, SENTENCES)
    memory = model.encode(scenes)
    for number, (words, one) in enumerate(zip(SENTENCES, found, strict=True)):
        image = number // 2
        own = {name: part[image : image + 1] for name, part in memory.items()}
        state, said, total = model.start(own), START, 0.0
        for word, trace in zip([*map(VOCABULARY.id, words), END], [*one.caption.trace, one.end], strict=True):
            log_probs, state = model.step(torch.tensor([said]), own, state)
            assert trace.log_prob == pytest.approx(float(log_probs[0, word].detach()), abs=1e-5)
            total, said = total + float(log_probs[0, word].detach()), word
        assert one.caption.log_prob == pytest.approx(total, abs=1e-4)
        assert one.perplexity == pytest.approx(math.exp(-total / (len(words) + 1)), rel=1e-4)
        assert one.caption.trace[0].regions.shape == (int(scenes.region_mask[image].sum()),)
    assert found[2].unknown == ("zebra",)


def test_sentences_must_share_out_among_scenes():
    with pytest.raises(CountError, match="3 sentences for 2 scenes"):
        likelihood(updown(), random_scenes(2), VOCABULARY, SENTENCES[:3])


def test_no_scenes_are_told():
    scenes = random_scenes(1)
    none = replace(scenes, ids=(), regions=scenes.regions[:0], region_mask=scenes.region_mask[:0])
    with pytest.raises(CountError, match="2 sentences for 0 scenes"):
        likelihood(updown(), none, VOCABULARY, SENTENCES[:2])


def never(model, word):
    """The model, which now finds one id impossible."""
    with torch.no_grad():
        model.output.weight[word], model.output.bias[word] = 0, -1e4
    return model


@pytest.mark.filterwarnings("error")
def test_a_word_that_is_never_said_has_infinite_perplexity():
    found = likelihood(never(updown(), UNK), random_scenes(1), VOCABULARY, [["zebra"]])[0]
    assert found.caption.log_prob < -9000
    assert found.perplexity == math.inf


def test_attention_and_gates_are_dumped_without_pickle(tmp_path):
    torch.manual_seed(0)
    config = AdaptiveAttentionConfig(
        grid_width=GRID_WIDTH, vector_width=VECTOR_WIDTH, word_size=8, hidden_size=8, attention_size=8
    )
    found = likelihood(config.build(WORDS).eval(), random_scenes(1), VOCABULARY, SENTENCES[1:2])[0]
    save_attention(tmp_path / "a.npz", found, np.zeros((5, 4), np.float32))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as read:
        assert read["words"].tolist() == ["the", "man", "on", "a", "dog", "<end>"]
        assert read["grid"].shape == (6, 6)
        assert "regions" not in read
        np.testing.assert_allclose(read["grid"].sum(1) + read["gate_sentinel"], 1, atol=1e-5)
        assert read["log_probs"].sum() == pytest.approx(found.caption.log_prob)
        assert read["boxes"].shape == (5, 4)


@pytest.fixture
def files(tmp_path):
    save(tmp_path / "model.safetensors", Checkpoint(updown(), VOCABULARY, fingerprint="eyes"))
    random = np.random.default_rng(0)
    with FeatureStore.writer(tmp_path / "scenes", fingerprint="eyes") as writer:
        for id in ("cat.jpg", "dog"):
            regions = random.normal(size=(3, REGION_WIDTH)).astype(np.float32)
            boxes = np.array([[0, 0, 0.5, 0.5]] * 3, np.float32)
            writer.add(Scene(id, boxes=boxes, regions=regions, fingerprint="eyes"))
    return tmp_path


def run(files, *arguments):
    options = ["--model", str(files / "model.safetensors"), "--features", str(files / "scenes")]
    return main(["likelihood", *arguments, *options])


def test_the_command_prints_every_word(files, capsys):
    assert run(files, "photos/cat.jpg", "A man on the zebra.") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:7]] == ["a", "man", "on", "the", "zebra", "<end>"]
    assert "does not know zebra" in out


@pytest.mark.filterwarnings("error")
def test_json_has_null_for_what_is_infinite(files, capsys):
    save(files / "model.safetensors", Checkpoint(never(updown(), UNK), VOCABULARY, fingerprint="eyes"))
    assert run(files, "dog", "a zebra", "--json") == 0

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    told = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert told["perplexity"] is None
    assert told["log_prob"] < -9000
    assert run(files, "dog", "a zebra") == 0
    assert "perplexity inf" in capsys.readouterr().out


def test_a_dump_gets_the_suffix_that_numpy_gives(files):
    assert run(files, "dog", "a dog", "--quiet", "--attention", str(files / "seen.v1")) == 0
    with np.load(files / "seen.v1.npz") as read:
        assert read["words"].tolist() == ["a", "dog", "<end>"]
    assert not (files / "seen.v1").exists()


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "cpu:7", "meta", ""])
def test_a_device_that_is_not_there_gets_a_sentence(files, capsys, device):
    assert run(files, "dog", "a dog", "--device", device) == 2
    told = capsys.readouterr().err
    assert "no device is called" in told or "this machine has no" in told


def test_help_names_what_to_give(capsys):
    with pytest.raises(SystemExit):
        main(["likelihood", "--help"])
    told = capsys.readouterr().out
    assert "PHOTO CAPTION" in told
    assert "{None}" not in told


def test_the_command_gives_json_and_a_dump(files, capsys):
    assert run(files, "dog.png", "a dog", "--json", "--attention", str(files / "a.npz")) == 0
    told = json.loads(capsys.readouterr().out)
    assert [word["word"] for word in told["words"]] == ["a", "dog", "<end>"]
    assert told["log_prob"] == pytest.approx(sum(word["log_prob"] for word in told["words"]))
    with np.load(files / "a.npz") as read:
        assert read["regions"].shape == (3, 3)
        assert read["boxes"].shape == (3, 4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(("bird.jpg", "a dog"), "no features of 'bird.jpg'"), (("cat.jpg", " ! "), "the caption has no word")],
)
def test_mistakes_get_a_sentence(files, capsys, arguments, sentence):
    assert run(files, *arguments) == 2
    assert sentence in capsys.readouterr().err


def test_a_matcher_is_no_captioner(files, capsys):
    matcher = VSEPPConfig(region_width=REGION_WIDTH, size=4, word_size=4).build(WORDS)
    save(files / "model.safetensors", Checkpoint(matcher, VOCABULARY))
    assert run(files, "cat.jpg", "a dog") == 2
    assert "cannot write captions" in capsys.readouterr().err


def test_an_id_that_is_the_photos_own_name_is_taken_among_others_of_that_name(files, capsys):
    with FeatureStore.writer(files / "scenes", fingerprint="eyes") as writer:
        regions, boxes = np.ones((3, REGION_WIDTH), np.float32), np.array([[0, 0, 0.5, 0.5]] * 3, np.float32)
        writer.add(Scene("x/cat.jpg", boxes=boxes, regions=regions, fingerprint="eyes"))
    said = []
    for name in ("cat.jpg", "photos/cat.jpg", "x/cat.jpg"):
        assert run(files, name, "a dog", "--json") == 0
        said.append(json.loads(capsys.readouterr().out)["log_prob"])
    assert said[0] == said[1] != said[2]


def test_features_of_other_eyes_are_refused(files, capsys):
    save(files / "model.safetensors", Checkpoint(updown(), VOCABULARY, fingerprint="other"))
    assert run(files, "cat.jpg", "a dog") == 2
    assert "was trained on scenes other, and these are" in capsys.readouterr().err


def test_a_file_without_features_is_told(files, capsys):
    (files / "captions.csv").write_text("image,caption\ncat.jpg,a cat\n")
    options = ["--model", str(files / "model.safetensors"), "--features", str(files / "captions.csv")]
    assert main(["likelihood", "cat.jpg", "a dog", *options]) == 2
    assert "holds no features" in capsys.readouterr().err


def test_a_model_with_eyes_looks_at_the_photo_itself(tmp_path, capsys):
    torch.manual_seed(0)
    config = UpDownConfig(region_width=1280, word_size=8, hidden_size=8, attention_size=8)
    model = end_to_end(config.build(WORDS), GridEncoder("lite0", size=64)).eval()
    save(tmp_path / "model.safetensors", Checkpoint(model, VOCABULARY))
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (50, 90, 3), dtype=np.uint8)).save(tmp_path / "photo.png")
    options = ["--model", str(tmp_path / "model.safetensors"), "--attention", str(tmp_path / "a.npz"), "--json"]
    assert main(["likelihood", str(tmp_path / "photo.png"), "a dog", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main(["likelihood", "photo.png", "a dog", *options, "--features", str(tmp_path / "scenes")]) == 2
    assert "looks at photos itself" in capsys.readouterr().err
    pixels, _ = read_pixels(tmp_path / "photo.png", 64)
    scenes = model.vision.scenes(torch.from_numpy(pixels).permute(2, 0, 1)[None], ["photo"])
    words = torch.tensor([VOCABULARY.encode(["a", "dog"])])
    expected = model.captioner.log_prob(model.captioner.encode(scenes), words)
    assert told["log_prob"] == pytest.approx(float(expected[0].detach()), abs=1e-4)
    with np.load(tmp_path / "a.npz") as read:
        assert read["regions"].shape == (3, 4)
        assert read["boxes"].shape == (4, 4)


def test_a_model_without_eyes_asks_for_features(files, capsys):
    assert main(["likelihood", "cat.jpg", "a dog", "--model", str(files / "model.safetensors")]) == 2
    assert "--features" in capsys.readouterr().err


def test_a_caption_is_as_likely_as_the_command_that_wrote_it_says(capsys):
    photo, options = str(Path(__file__).parents[2] / "examples" / "cat.jpg"), ["--device", "cpu", "--json"]
    assert main(["caption", photo, *options]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert main(["likelihood", photo, said["caption"], *options]) == 0
    assert json.loads(capsys.readouterr().out)["log_prob"] == pytest.approx(said["log_prob"], abs=1e-3)
