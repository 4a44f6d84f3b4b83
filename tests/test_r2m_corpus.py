"""From sentences to pools: what is kept, which words there are, and what is held out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sightline.errors import ConfigError, CountError
from sightline.learning.batches import Batches, Batching
from sightline.learning.concepts import ConceptDictionary
from sightline.learning.corpus import Corpus, Keeping, build_corpus, read_corpus
from sightline.learning.tables import Pool
from sightline.text.vocabulary import Vocabulary

DICTIONARY = ConceptDictionary.coco()
LONG = "two dogs run across the green grass ."
NO_CONCEPT = "the green grass of the field is green ."
SENTENCES = [LONG, "a man looks at the dogs on the grass .", "a dog runs .", NO_CONCEPT, *[LONG] * 6]


def corpus(sentences: list[str] = SENTENCES, **choices: object) -> Corpus:
    return build_corpus(sentences, DICTIONARY, Keeping(**{"min_count": 1, "held_out": 0.3, **choices}))


def concepts_of(pool: Pool, vocabulary: Vocabulary) -> list[list[str]]:
    whole = pool.scenes.scenes
    pairs = zip(whole.concepts.tolist(), whole.concept_mask.tolist(), strict=True)
    return [[vocabulary.word(id) for id, real in zip(*row, strict=True) if real] for row in pairs]


def test_short_sentences_and_those_without_concepts_are_left_out():
    found = corpus()
    assert len(found.held_out) == 2
    assert len(found.train) == 6
    words = [" ".join(words) for words in (*found.held_out.texts.words, *found.train.texts.words)]
    assert words == [SENTENCES[0], SENTENCES[1], *[LONG] * 6]
    assert found.told.startswith(
        "8 of 10 sentences are kept, the first 2 to stop by. Left out: 1 too short or too long, 0 with too many "
        "unknown words, 1 without a concept."
    )


def test_concepts_are_singular_and_the_sentence_keeps_its_plural():
    found = corpus()
    assert concepts_of(found.held_out, found.vocabulary) == [["dog"], ["person", "dog"]]
    assert found.held_out.texts.words[0] == tuple(LONG.split())
    assert "dogs" in found.vocabulary


def test_sentences_that_are_too_long_are_left_out_and_not_cut():
    assert {len(words) for words in corpus(max_words=8).train.texts.words} == {8}
    longer = [*SENTENCES, "a man " * 20]
    assert len(corpus(longer).train) == 6
    assert max(len(words) for words in corpus(longer, max_words=None).train.texts.words) == 40


def test_words_must_occur_five_times_and_concept_words_need_not():
    found = corpus([LONG] * 5 + ["a man walks over the green grass now ."] * 4, min_count=0, unknown=1.0)
    assert {"dogs", "run", "grass", *DICTIONARY.words} <= set(found.vocabulary)
    assert "walks" not in found.vocabulary
    assert "now" not in found.vocabulary


def test_sentences_with_more_than_the_share_of_unknown_words_are_left_out():
    strange = "two dogs run across the green blarg frob ."  # 2 of 9 words
    sentences = [LONG] * 10 + [strange]
    assert len(corpus(sentences, min_count=5, unknown=0.15).train) == 7
    assert len(corpus(sentences, min_count=5, unknown=0.25).train) == 8


def test_words_of_another_corpus_can_be_taken_over():
    first = corpus()
    second = build_corpus([LONG] * 9, DICTIONARY, Keeping(held_out=0.2), first.vocabulary)
    assert second.vocabulary is first.vocabulary
    assert len(second.train) == 8


def test_a_batch_pairs_each_sentence_with_its_concepts():
    found = corpus()
    batch = Batches(found.train, Batching("pairs", 4, pool="corpus"), seed=0).batch(0, 0)
    assert len(batch.scenes) == len(batch.texts) == 4
    assert batch.scenes.ids == tuple(found.train.ids[row] for row in batch.captions)


def test_a_corpus_of_nothing_and_wrong_choices_are_refused():
    with pytest.raises(CountError, match="0 of 2 sentences"):
        corpus([NO_CONCEPT, "a dog ."])
    for choices in ({"min_words": 0}, {"max_words": 3}, {"unknown": 1.5}, {"held_out": 0.0}):
        with pytest.raises(ConfigError):
            Keeping(**choices)


def senticap(path: Path) -> Path:
    def sentence(text: str, sentiment: int) -> dict[str, object]:
        tokens = text.split()
        return {"tokens": tokens, "word_sentiment": [0.0] * len(tokens), "sentiment": sentiment, "raw": text}

    sentences = [sentence("a lovely dog", 1), sentence("a sad dog", 0)]
    image = {"imgid": 1, "filename": "1.jpg", "split": "train", "sentences": sentences}
    path.write_bytes(gzip.compress(json.dumps({"images": [image]}).encode()))
    return path


def test_sentences_come_from_text_from_captions_and_by_sentiment(tmp_path):
    (tmp_path / "corpus.txt").write_text("a dog runs fast\nmen sit on a bench\n")
    assert read_corpus(tmp_path / "corpus.txt") == ["a dog runs fast", "men sit on a bench"]
    (tmp_path / "gcc.tsv").write_text("a dog runs\thttps://example.org/1.jpg\n")
    assert read_corpus(tmp_path / "gcc.tsv") == ["a dog runs"]
    path = senticap(tmp_path / "senticap.json.gz")
    assert read_corpus(path) == ["a lovely dog", "a sad dog"]
    assert read_corpus(path, "positive") == ["a lovely dog"]
    with pytest.raises(ConfigError, match="tells no sentiment"):
        read_corpus(tmp_path / "corpus.txt", "positive")
    (tmp_path / "classes_class_name.txt").write_text("dog\ncat\n")
    with pytest.raises(ConfigError, match="holds no sentences"):
        read_corpus(tmp_path / "classes_class_name.txt")


@pytest.mark.data
def test_the_corpora_at_hand_keep_most_of_their_sentences(data_dir: Path):
    conceptual = build_corpus(read_corpus(data_dir / "corpora/conceptual_captions_val.txt.gz"), DICTIONARY)
    assert len(conceptual.train) > 4000
    positive = read_corpus(data_dir / "corpora/senticap.json.gz", "positive")
    assert len(positive) == 4892
    assert len(build_corpus(positive, DICTIONARY).train) > 3000
    flickr = read_corpus(data_dir / "corpora/flickr30k_captions.txt.gz")[:20_000]
    assert len(build_corpus(flickr, DICTIONARY).train) > 16_000
