"""Captions in the words of one's own text: R²M behind a detector."""

import json
from dataclasses import replace

import pytest
import torch

from bundle_samples import EXAMPLES, NAMES, tiny_bundle
from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import save_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.checkpoint.style_captions import StyleCaptioner, concept_words, general_words, with_style
from sightline.cli import commands
from sightline.data.concept_dictionary import ConceptDictionary
from sightline.decoding.rules import Rules
from sightline.errors import CheckpointError
from sightline.models.r2m import R2MConfig
from sightline.models.updown import UpDownConfig
from sightline.pipeline import Pipeline
from sightline.scene import Concept
from sightline.text.vocabulary import END, Vocabulary
from sightline.vision.concept_names import concept_names
from sightline.vision.concept_tokens import token_names
from sightline.vision.detector import DetectorConfig
from sightline.vision.grid_encoder import GridEncoder

torch.set_num_threads(1)
PHOTO = EXAMPLES / "cat.jpg"
WORDS = "verily a noble dog cat person ball doth sit upon yonder throne".split()


def style_file(folder, words=WORDS, **card):
    torch.manual_seed(1)
    vocabulary = Vocabulary(words)
    model = R2MConfig(hidden_size=64, vector_width=8).build(len(vocabulary)).eval()
    with torch.no_grad():
        model.output.bias[END] = -2
    path = folder / "style.safetensors"
    model_checkpoint.save(path, Checkpoint(model, vocabulary, "r2m", card=card))
    return path


@pytest.fixture(scope="module")
def bundle():
    return tiny_bundle()


def test_a_photo_is_told_in_the_words_of_the_style(bundle, tmp_path):
    said = Pipeline(with_style(bundle, style_file(tmp_path))).caption(PHOTO)
    assert said.words
    assert set(said.words) <= set(WORDS)
    assert said.concepts == Pipeline(bundle).caption(PHOTO).concepts


def test_the_command_speaks_in_a_style_and_can_tell_apart_in_it(bundle, tmp_path, capsys):
    save_bundle(tmp_path / "model.safetensors", bundle)
    asked = ["caption", str(EXAMPLES), "--style", str(style_file(tmp_path)), "--distinct", "--length", "5", "--json"]
    assert commands.main([*asked, "--model", str(tmp_path / "model.safetensors"), "--device", "cpu"]) == 0
    told = [one["caption"] for one in json.loads(capsys.readouterr().out)]
    assert {word for caption in told for word in caption.split()} <= set(WORDS)
    assert len(set(told)) == len(told)


def test_nouns_of_a_style_point_where_the_matcher_finds_them(bundle, tmp_path):
    said = Pipeline(with_style(bundle, style_file(tmp_path))).caption(
        PHOTO, rules=Rules(max_words=6, must_include=("dog",))
    )
    assert said.trace[said.words.index("dog")].box is not None


def test_a_caption_has_no_full_stop_of_its_own(bundle, tmp_path):
    """Alt text adds one: `a dog .` would end in two."""
    pipeline = Pipeline(with_style(bundle, style_file(tmp_path, [*WORDS, "."])))
    rules = Rules(max_words=3, must_include=("a dog .",))  # it can say nothing else
    said, other = pipeline.caption(PHOTO, rules=rules), pipeline.alternatives(PHOTO, rules=rules)[0]
    assert said.words == other.words == ("a", "dog")
    assert len(said.trace) == 2
    assert said.log_prob == pytest.approx(other.log_prob)


def test_names_become_the_concept_words_that_the_style_knows():
    words = Vocabulary(["person", "hotdog", "dog"])
    found = concept_words(["man", "hot dog", "dog", "cat", "sky"], ConceptDictionary.coco(), words)
    assert found == {"man": "person", "hot dog": "hotdog", "dog": "dog", "cat": "", "sky": ""}
    assert concept_words(["man"], ConceptDictionary.entities(), Vocabulary(["man", "person"])) == {"man": "man"}


def test_concepts_are_those_that_r2m_was_trained_on_and_never_none():
    speaker = StyleCaptioner.__new__(StyleCaptioner)
    torch.nn.Module.__init__(speaker)
    speaker._concept_words, speaker._general = {"man": "person", "woman": "person", "dog": "dog", "sky": ""}, {}
    seen = [Concept("sky", 0.9), Concept("dog", 0.5), Concept("man", 0.7), Concept("woman", 0.6)]
    assert [(one.name, one.score) for one in speaker._concepts(seen)] == [("person", 0.7), ("dog", 0.5)]
    assert [one.name for one in speaker._concepts([Concept("dog", 0.49), *seen[2:]])] == ["person"]  # unsure
    assert [one.name for one in speaker._concepts([Concept("dog", 0.01), Concept("man", 0.02)])] == ["person"]


def test_of_two_names_of_one_thing_the_particular_one_is_said():
    """A sentence about a man does not say that he is a person too."""
    names = ["person", "man", "dog", "motorbike", "motorcycle"]
    words = concept_words(names, ConceptDictionary.detector(), Vocabulary(names))
    general = general_words(words)
    assert general["man"] == {"person"}
    assert general["person"] == general["dog"] == frozenset()
    speaker = StyleCaptioner.__new__(StyleCaptioner)
    torch.nn.Module.__init__(speaker)
    speaker._concept_words, speaker._general = words, general
    seen = [Concept("person", 0.9), Concept("dog", 0.6), Concept("man", 0.5)]
    assert [one.name for one in speaker._concepts(seen)] == ["dog", "man"]
    assert [one.name for one in speaker._concepts([Concept("person", 0.9), Concept("man", 0.1)])] == ["person"]
    same = {"motorbike": frozenset({"motorcycle"}), "motorcycle": frozenset({"motorbike"})}
    speaker._general = same
    both = [Concept("motorcycle", 0.6), Concept("motorbike", 0.7)]
    assert [one.name for one in speaker._concepts(both)] == ["motorbike"]


def test_a_person_beside_animals_bags_and_vehicles_is_not_forgotten():
    """An *animal* may be a skunk, which to WordNet is first of all a person; so it is with birds, bags and vehicles."""
    dictionary = ConceptDictionary.detector()
    names = token_names()
    words = concept_words(names, dictionary, Vocabulary(dictionary.words))
    general = general_words(words)
    for word in ("animal", "bird", "bag", "vehicle", "dog"):
        assert "person" not in general[word]
    assert "animal" in general["dog"]


def test_a_detector_that_knows_imagenet_is_understood(bundle, tmp_path):
    """Its names are more than those of regions; a style that has no word for one says what it is a kind of."""
    config = DetectorConfig(
        variant="lite0", size=64, channels=16, region_width=24, names=concept_names(), imagenet=True
    )
    path = style_file(tmp_path, ["a", "animal", "cup"], recipe={"data": {"dictionary": "detector"}})
    speaker = with_style(replace(bundle, vision=config.build().eval()), path).captioner.model
    assert isinstance(speaker, StyleCaptioner)
    assert [one.name for one in speaker._concepts([Concept("leopard", 0.9), Concept("cup", 0.5)])] == ["animal", "cup"]


def test_the_dictionary_is_the_one_it_was_trained_with(bundle, tmp_path):
    own = tmp_path / "own.tsv"
    own.write_text("dog\tbeast\tdog, hound\ncat\tbeast\tcat\nperson\tknave\tperson\nball\torb\tball\n")
    words = "verily a beast knave orb".split()
    card = {"recipe": {"data": {"dictionary": "/elsewhere/own.tsv"}}}
    said = Pipeline(with_style(bundle, style_file(tmp_path, words, **card))).caption(PHOTO)
    assert set(said.words) <= set(words)
    own.unlink()
    with pytest.raises(CheckpointError, match=r"concept dictionary .*own\.tsv, which is not there"):
        with_style(bundle, style_file(tmp_path, words, **card))


def test_what_cannot_be_a_style_is_told(bundle, tmp_path):
    with pytest.raises(CheckpointError, match="knows none of the things"):
        with_style(bundle, style_file(tmp_path, ["verily", "throne"]))
    other = UpDownConfig(region_width=8, word_size=4, hidden_size=4, attention_size=4).build(5).eval()
    model_checkpoint.save(tmp_path / "updown.safetensors", Checkpoint(other, Vocabulary(["a"])))
    with pytest.raises(CheckpointError, match="a style is an r2m model, and this is an updown model"):
        with_style(bundle, tmp_path / "updown.safetensors")
    save_bundle(tmp_path / "bundle.safetensors", bundle)
    with pytest.raises(CheckpointError, match="this is a bundle, and a checkpoint was expected"):
        with_style(bundle, tmp_path / "bundle.safetensors")
    with pytest.raises(CheckpointError, match="has no names"):
        with_style(replace(bundle, vision=GridEncoder("lite0", 64).eval()), style_file(tmp_path))


def test_the_tiny_detector_has_names_that_the_style_knows():
    assert all(concept_words(NAMES, ConceptDictionary.coco(), Vocabulary(WORDS)).values())
