"""Names that the captioner has no word for are copied into captions."""

import json

import pytest

from bundle_samples import EXAMPLES
from sightline.caption import Caption, WordTrace
from sightline.cli import commands
from sightline.decoding.copy_names import CopyName, split_rules, without_names, write_names
from sightline.decoding.rules import Rules
from sightline.errors import ConfigError
from sightline.text.vocabulary import Vocabulary

KNOWN = Vocabulary(
    "a an and the woman man person dog tower stick ben cup red two young little brown white with".split()
)
ANNA = CopyName(("Anna",), ("woman", "man"))
REX = CopyName(("Rex",), ("dog",))


def names_of(*phrases: str) -> dict[str, tuple[str, ...]]:
    rules, names = split_rules(Rules(must_include=phrases), KNOWN)
    assert set(rules.must_include) | {" ".join(one.name) for one in names} == {one.split("=")[0] for one in phrases}
    return {" ".join(one.name): one.stand_ins for one in names}


def test_people_stand_in_for_a_name_and_a_kind_that_is_said_for_anything():
    assert names_of("Anna", "red cup", "Rex=dog", "Ben", "Dog", "Anna Smith") == {
        "Anna": ("woman", "man", "person"),
        "Rex": ("dog",),
        "Ben": ("woman", "man", "person"),  # although it has the ben of Big Ben
        "Anna Smith": ("woman", "man", "person"),
    }


def test_a_common_noun_is_what_wordnet_says_it_is_and_a_compound_what_its_last_word_is():
    assert names_of("selfie-stick", "poodle", "Eiffel Tower") == {
        "selfie-stick": ("stick",),
        "poodle": ("dog",),
        "Eiffel Tower": ("tower",),
    }


@pytest.mark.parametrize(
    ("phrase", "words"),
    [
        ("qwertyish", "say what it is, such as qwertyish=dog"),
        ("Rex=wolf", "'wolf', which was to stand in for a name"),
        ("=dog", "NAME=KIND"),
        ("Rex=", "NAME=KIND"),
    ],
)
def test_a_word_that_nobody_knows_is_asked_about(phrase, words):
    with pytest.raises(ConfigError, match=words):
        split_rules(Rules(must_include=(phrase,)), KNOWN)


@pytest.mark.parametrize(
    ("caption", "names", "expected"),
    [
        ("a young woman with a cup", [ANNA], "Anna with a cup"),
        ("two dogs with a woman", [ANNA], "two dogs with Anna"),
        ("a man and woman sitting", [ANNA], "Anna and woman sitting"),
        ("a brown and white dog sits", [REX], "Rex sits"),
        ("a man with his little dog", [ANNA, REX], "Anna with Rex"),
        ("a building with a woman dog in it", [ANNA, REX], "a building with Anna and Rex in it"),
        ("a cat with a dog a woman", [ANNA, REX], "a cat with Rex and Anna"),
        ("a big dog", [CopyName(("airedale",), ("dog",))], "a big airedale"),
        ("a woman holding a dog", [CopyName(("Anna", "Lee"), ("woman",))], "Anna Lee holding a dog"),
    ],
)
def test_a_name_takes_the_place_of_its_stand_in_and_of_what_describes_that(caption, names, expected):
    assert write_names(Caption(tuple(caption.split())), names).text == expected


def test_a_name_has_the_box_and_probability_of_its_stand_in_and_wanted_words_stay():
    trace = tuple(WordTrace(log_prob=-float(at), box=(0, 0, 1, 1) if at == 2 else None) for at in range(5))
    caption = Caption(tuple("a red woman with cups".split()), -7.0, trace)
    copied = write_names(caption, [ANNA])
    assert (copied.text, copied.log_prob) == ("Anna with cups", -7.0)
    assert [word.log_prob for word in copied.trace] == [-2.0, -3.0, -4.0]
    assert copied.trace[0].box == (0, 0, 1, 1)
    assert write_names(caption, [ANNA], keep=("red",)).text == "a red Anna with cups"


def test_what_a_captioner_reads_has_no_names():
    assert without_names("Anna with Rex".split(), [ANNA, REX]) == ("a", "woman", "with", "a", "dog")


@pytest.mark.parametrize("more", [[], ["--distinct"], ["--length", "short"]], ids=" ".join)
def test_every_caption_of_the_command_has_the_name(tiny_model, capsys, more):
    asked = ["caption", str(EXAMPLES), "--must-include", "Anna", "cup", *more, "--json"]
    assert commands.main([*asked, "--model", str(tiny_model), "--device", "cpu"]) == 0
    for one in json.loads(capsys.readouterr().out):
        assert {"Anna", "cup"} <= set(one["caption"].split())
        assert [word["word"] for word in one["words"]] == one["caption"].split()
