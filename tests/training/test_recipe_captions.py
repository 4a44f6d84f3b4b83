"""From sentences to pools: what is kept, which words there are, and what is held out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from sightline.data.concept_dictionary import ConceptDictionary
from sightline.errors import ConfigError, CountError
from sightline.models.r2m import R2MConfig
from sightline.text.vocabulary import Vocabulary
from sightline.training import cuda_graphs
from sightline.training.batches import Batches, Batching
from sightline.training.data import Data, build_data
from sightline.training.data_config import DataConfig
from sightline.training.recipe_captions import read_corpus
from sightline.training.tensor_tables import Pool

DICTIONARY = ConceptDictionary.coco()
LONG = "two dogs run across the green grass ."
MEN = "a man looks at the dogs on the grass ."
NO_CONCEPT = "the green grass of the field is green ."
SENTENCES = [LONG, MEN, "a dog runs .", NO_CONCEPT, *[LONG] * 6]


def data_of(path: Path, words: Vocabulary | None = None, **choices: object) -> Data:
    config = DataConfig(corpus=path, rule="r2m", vocabulary="corpus", **choices)
    return build_data(config, R2MConfig(), vocabulary=words)


@pytest.fixture
def corpus(tmp_path):
    def make(sentences: Sequence[str] = SENTENCES, **choices: object) -> Data:
        (tmp_path / "text.txt").write_text("\n".join(sentences) + "\n")
        return data_of(tmp_path / "text.txt", **{"min_count": 1, **choices})

    return make


def rows_of(pool: Pool, vocabulary: Vocabulary) -> list[tuple[str, list[str]]]:
    """Each sentence with its concepts."""
    whole = pool.scenes.scenes
    pairs = zip(whole.concepts.tolist(), whole.concept_mask.tolist(), strict=True)
    concepts = [[vocabulary.word(id) for id, real in zip(*row, strict=True) if real] for row in pairs]
    return list(zip(map(" ".join, pool.texts.words), concepts, strict=True))


def all_rows(data: Data) -> list[tuple[str, list[str]]]:
    return [row for pool in data.pools.values() for row in rows_of(pool, data.vocabulary)]


def said(data: Data) -> list[str]:
    return [sentence for sentence, _ in all_rows(data)]


def test_short_sentences_and_those_without_concepts_are_left_out(corpus):
    found = corpus()
    assert set(found.pools) == {"corpus", "corpus-val"}
    assert sorted(said(found)) == sorted([MEN, *[LONG] * 7])
    held = len(found.pools["corpus-val"])
    assert found.notes[-1] == (
        f"Of 10 sentences of the corpus 8 are used, {held} of them to choose models by. Left out: 1 of fewer than 8 or "
        "more than 28 words, 0 with too many unknown words, 1 that name nothing of the dictionary."
    )


def test_concepts_are_singular_and_the_sentence_keeps_its_plural(corpus):
    found = corpus()
    assert (LONG, ["dog"]) in all_rows(found)
    assert (MEN, ["person", "dog"]) in all_rows(found)
    assert "dogs" in found.vocabulary


def test_sentences_that_are_too_long_are_left_out_and_not_cut(corpus):
    assert set(said(corpus(max_words=8))) == {LONG}  # the other has 10
    longer = [*SENTENCES, "a man " * 14, "a man " * 14 + "."]
    assert max(len(sentence.split()) for sentence in said(corpus(longer))) == 28
    every = corpus(longer, max_words=0)
    assert max(len(sentence.split()) for sentence in said(every)) == 29
    assert "1 of fewer than 8 words," in every.notes[-1]


def test_sentences_of_the_usual_lengths_make_fewer_shapes_than_graphs_are_kept():
    shapes = {cuda_graphs.padded_steps(words + 1) for words in range(1, DataConfig.max_words + 1)}
    assert len(shapes) <= cuda_graphs.SHAPES


def numbered(count: int) -> list[str]:
    return [f"dog number {i} runs across the green grass ." for i in range(count)]


def test_a_share_of_the_sentences_is_held_out_whatever_else_is_there(corpus):
    held = {count: corpus(numbered(count), held_out=0.3).pools["corpus-val"] for count in (100, 200)}
    first, second = (set(map(" ".join, pool.texts.words)) for pool in held.values())
    assert 15 < len(first) < 45
    assert first == second & set(numbered(100))


def test_equal_sentences_are_on_the_same_side(corpus):
    sides = corpus([sentence for sentence in numbered(40) for _ in range(3)], held_out=0.5).pools.values()
    train, held = (set(pool.texts.words) for pool in sides)
    assert not train & held
    assert len(train) + len(held) == 40


@pytest.mark.parametrize("share", [0.0, 0.999_999])
def test_neither_side_is_empty(corpus, share):
    assert min(len(pool) for pool in corpus(held_out=share).pools.values()) == 1


def test_no_more_sentences_of_a_side_than_asked_are_used(corpus):
    found = corpus(numbered(40), held_out=0.5, max_photos=5)
    assert {len(pool) for pool in found.pools.values()} == {5}


def test_words_must_occur_five_times_and_concept_words_need_not(corpus):
    found = corpus([LONG] * 5 + ["a man walks over the green grass now ."] * 4, min_count=0, unknown=1.0)
    assert {"dogs", "run", "grass", *DICTIONARY.words} <= set(found.vocabulary)
    assert "walks" not in found.vocabulary
    assert "now" not in found.vocabulary


def test_sentences_with_more_than_the_share_of_unknown_words_are_left_out(corpus):
    strange = "two dogs run across the green blarg frob ."  # 2 of 9 words
    sentences = [LONG] * 10 + [strange]
    assert len(all_rows(corpus(sentences, min_count=5, unknown=0.22))) == 10
    assert len(all_rows(corpus(sentences, min_count=5, unknown=2 / 9))) == 11


def test_words_of_another_corpus_can_be_taken_over(corpus):
    first = corpus()
    second = corpus([LONG] * 9, words=first.vocabulary)
    assert second.vocabulary is first.vocabulary
    assert len(all_rows(second)) == 9
    assert corpus([LONG] * 9).vocabulary != first.vocabulary


def test_a_batch_pairs_each_sentence_with_its_concepts(corpus):
    found = corpus().pools["corpus"]
    batch = Batches(found, Batching("pairs", 4, pool="corpus"), seed=0).batch(0, 0)
    assert len(batch.scenes) == len(batch.texts) == 4
    assert batch.scenes.ids == tuple(found.ids[row] for row in batch.captions)


def test_a_corpus_of_nothing_and_wrong_choices_are_refused(corpus):
    with pytest.raises(CountError, match="0 of 2 sentences of the corpus can be used"):
        corpus([NO_CONCEPT, "a dog ."])
    with pytest.raises(CountError, match="1 of 1 sentence of the corpus can be used"):
        corpus([LONG])
    for choices in (
        {"min_words": -1},
        {"max_words": -1},
        {"max_words": 3},
        {"unknown": 1.5},
        {"unknown": -0.1},
        {"held_out": 1.0},
        {"held_out": -0.1},
    ):
        with pytest.raises(ConfigError, match=f"data.{next(iter(choices))}"):
            DataConfig(**choices)
    with pytest.raises(ConfigError, match=r"sentiment chooses.*data.corpus"):
        DataConfig(sentiment="positive")


def senticap(path: Path, *texts: tuple[str, int]) -> Path:
    def sentence(text: str, sentiment: int) -> dict[str, object]:
        tokens = text.split()
        return {"tokens": tokens, "word_sentiment": [0.0] * len(tokens), "sentiment": sentiment, "raw": text}

    image = {"imgid": 1, "filename": "1.jpg", "split": "train", "sentences": [sentence(*text) for text in texts]}
    path.write_bytes(gzip.compress(json.dumps({"images": [image]}).encode()))
    return path


def test_sentences_come_from_text_from_captions_and_by_sentiment(tmp_path):
    (tmp_path / "corpus.txt").write_text("a dog runs fast\nmen sit on a bench\n")
    assert read_corpus(tmp_path / "corpus.txt") == ("a dog runs fast", "men sit on a bench")
    (tmp_path / "gcc.tsv").write_text("a dog runs\thttps://example.org/1.jpg\n")
    assert read_corpus(tmp_path / "gcc.tsv") == ("a dog runs",)
    path = senticap(tmp_path / "senticap.json.gz", ("a lovely dog", 1), ("a sad dog", 0))
    assert read_corpus(path) == ("a lovely dog", "a sad dog")
    assert read_corpus(path, "positive") == ("a lovely dog",)
    assert read_corpus(path, "negative") == ("a sad dog",)
    with pytest.raises(ConfigError, match="tells no sentiment"):
        read_corpus(tmp_path / "corpus.txt", "positive")
    (tmp_path / "classes_class_name.txt").write_text("dog\ncat\n")
    with pytest.raises(ConfigError, match="holds no sentences"):
        read_corpus(tmp_path / "classes_class_name.txt")


def test_a_recipe_learns_from_the_sentiment_it_names(tmp_path):
    lovely, sad = "two lovely dogs run across the green grass", "two sad dogs run across the grey grass"
    path = senticap(tmp_path / "senticap.json.gz", (lovely, 1), (sad, 0), (f"{lovely} .", 1))
    found = data_of(path, sentiment="positive", min_count=1)
    assert set(said(found)) == {lovely, f"{lovely} ."}
    assert "sad" not in found.vocabulary


@pytest.mark.data
def test_the_corpora_at_hand_keep_most_of_their_sentences(data_dir: Path, corpus):
    assert len(data_of(data_dir / "corpora/conceptual_captions_val.txt.gz").pools["corpus"]) > 4000
    assert len(read_corpus(data_dir / "corpora/senticap.json.gz", "positive")) == 4892
    positive = data_of(data_dir / "corpora/senticap.json.gz", sentiment="positive")
    assert len(positive.pools["corpus"]) > 3000
    flickr = corpus(read_corpus(data_dir / "corpora/flickr30k_captions.txt.gz")[:20_000], min_count=0).pools
    assert len(flickr["corpus"]) > 16_000
    assert 100 < len(flickr["corpus-val"]) < 300
