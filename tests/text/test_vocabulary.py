import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.errors import ConfigError, DataError, DuplicateRecordError
from sightline.text.vocabulary import END, PAD, START, UNK, Vocabulary, build_vocabulary, rule

words = st.lists(st.text(min_size=1).filter(lambda w: not w.startswith("<")), unique=True, max_size=20)


@given(known=words, data=st.data())
def test_known_words_survive_encoding_and_decoding(known, data):
    vocabulary = Vocabulary(known)
    sentence = data.draw(st.lists(st.sampled_from(known), max_size=10)) if known else []
    assert vocabulary.decode(vocabulary.encode(sentence)) == sentence


def test_the_layout_is_pad_start_end_unknown_then_words():
    vocabulary = Vocabulary(["dog"])
    assert [vocabulary.word(i) for i in range(5)] == ["<pad>", "<start>", "<end>", "<unk>", "dog"]
    assert vocabulary.encode(["dog", "unicorn"]) == [START, 4, UNK, END]
    assert vocabulary.decode([START, 4, UNK, PAD, 4]) == ["dog", "<unk>"]
    assert len(vocabulary) == 5
    assert "dog" in vocabulary
    assert list(vocabulary) == ["dog"]
    assert vocabulary == Vocabulary(["dog"])
    assert hash(vocabulary) == hash(Vocabulary(["dog"]))
    assert repr(vocabulary) == "Vocabulary(1 words)"


def test_bad_word_lists_and_ids_are_refused():
    with pytest.raises(DuplicateRecordError, match="'dog'"):
        Vocabulary(["dog", "cat", "dog"])
    with pytest.raises(DataError, match="<unk> is a special"):
        Vocabulary(["<unk>"])
    with pytest.raises(DataError, match="ids run from 0 to 4"):
        Vocabulary(["dog"]).word(5)


def test_words_are_ordered_by_count_then_alphabet_and_rare_ones_left_out():
    built = build_vocabulary([["b", "a", "c"], ["a", "b", "z"], ["a"]], min_count=2, always=["zebra", "a"])
    assert built.words == ("a", "b", "zebra")


def test_self_critical_uses_given_tokens_cuts_at_16_and_keeps_more_than_five_occurrences():
    chosen = rule("self-critical")
    assert chosen.words("A Dog's bone.", ["a", "dogs", "bone"]) == ["a", "dogs", "bone"]
    assert len(chosen.words("", ["w"] * 30)) == 16
    assert chosen.all_words("", ["w"] * 30) == ["w"] * 30
    assert chosen.build(["dog cat"] * 5 + ["dog"]).words == ("dog",)
    assert chosen.counts_split("test")


def test_neuraltalk2_strips_ascii_punctuation_and_cuts_at_16():
    assert rule("neuraltalk2").words("A dog's toy, (a ball)!") == ["a", "dogs", "toy", "a", "ball"]
    assert len(rule("neuraltalk2").words("w " * 30)) == 16
    assert len(rule("adaptive-attention").words("w " * 30)) == 18


def test_scan_keeps_punctuation_counts_train_and_dev_and_cuts_nothing():
    chosen = rule("scan")
    assert chosen.words("A man's dog.") == ["a", "man", "'s", "dog", "."]
    assert len(chosen.words("w " * 30)) == 30
    assert [chosen.counts_split(s) for s in ("train", "dev", "val", "restval", "test", None)] == [True] * 4 + [
        False,
        True,
    ]
    assert chosen.build(["dog cat"] * 3 + ["dog"]).words == ("dog",)


def test_r2m_keeps_words_seen_five_times_and_every_concept():
    assert rule("r2m").build(["a dog ."] * 5 + ["cat"] * 4, always=["umbrella"]).words == (".", "a", "dog", "umbrella")


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Love THIS place! 100%", ["love", "this", "place"]),
        ("don't stop", ["dont", "stop"]),
        ("sunny day😎😎", ["sunny", "day", "😎", "😎"]),
        ("my😀dog", ["my", "😀", "dog"]),
        ("family 👨‍👩‍👧 time", ["family", "👨‍👩‍👧", "time"]),
        ("wave 👋🏽!", ["wave", "👋🏽"]),
        ("go 🇧🇷 go ❤️", ["go", "🇧🇷", "go", "❤️"]),
        ("keycap 1️⃣ not 1", ["keycap", "1️⃣", "not"]),
        ("Café NAÏVE", ["café", "naïve"]),
        ("✈ ☀", ["✈", "☀"]),
        ("#tbt @user_1 :)", ["tbt", "user"]),
        ("", []),
    ],
)
def test_the_contrastive_rule_keeps_letters_and_emojis(caption, expected):
    assert rule("contrastive").words(caption) == expected


@pytest.mark.data
def test_the_adaptive_attention_rule_gives_the_words_that_the_contrastive_paper_counts(data_dir):
    chosen, captions = rule("adaptive-attention"), []
    for half in ("train", "val"):
        with gzip.open(data_dir / "coco" / f"captions_{half}2014.json.gz", "rt", encoding="utf-8") as file:
            captions += [record["caption"] for record in json.load(file)["annotations"]]
    assert len(chosen.build(captions).words) + 1 == 9567  # the unknown word is one of the paper's
    assert chosen.max_words == 18


def test_the_contrastive_rule_cuts_at_18_words_and_emojis_and_drops_under_five():
    chosen = rule("contrastive")
    assert len(chosen.words("word 😀 " * 20)) == 18
    assert chosen.build(["hi 😀"] * 5 + ["bye 🙃"] * 4).words == ("hi", "😀")


@given(st.text())
def test_no_rule_crashes_on_any_text(text):
    for name in ("self-critical", "neuraltalk2", "scan", "r2m", "contrastive"):
        assert all(word and not word.isspace() for word in rule(name).words(text))


def test_an_unknown_rule_lists_the_known_ones():
    with pytest.raises(ConfigError, match="self-critical, neuraltalk2"):
        rule("nt3")
