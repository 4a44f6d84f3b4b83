"""Measuring trained models on a split, against the naive way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from captioner_contract import REGION_WIDTH, WORDS, greedy, random_scenes, random_words, rows
from matcher_contract import VOCABULARY, texts_of
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.data.records import GroundedPhoto, GroundedSentence, GroundedWord
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam, Greedy
from sightline.errors import ConfigError
from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.captioner import Captioner
from sightline.models.scan import POSSCANConfig, SCANConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.text.vocabulary import PAD, Vocabulary
from sightline.text.vocabulary import rule as named_rule
from sightline.training.evaluation import Evaluation, evaluate, token_loss, write_captions
from sightline.training.tensor_tables import Pool, SceneTable, TextTable
from sightline.training.word_boxes import split_tokens

CAPTIONS = "sightline.training.evaluation.write_captions"
QUICK = Evaluation(strategy=Greedy(), metrics=("bleu", "cider"), batch=3)


def metrics_of(*arguments, **options) -> dict[str, float]:
    return evaluate(*arguments, **options).metrics


def captioner() -> Captioner:
    torch.manual_seed(0)
    config = UpDownConfig(region_width=REGION_WIDTH, word_size=8, hidden_size=8, attention_size=8)
    return config.build(WORDS).eval()


def split(photos: int = 7, captions: int = 2) -> Pool:
    scenes, ids = random_scenes(photos), random_words(photos * captions)
    sentences = [VOCABULARY.decode(row.tolist()) for row in ids]
    said = [" ".join(words) for words in sentences]
    references = tuple(tuple(said[i * captions : (i + 1) * captions]) for i in range(photos))
    texts = TextTable.build(sentences, VOCABULARY, mark=lambda all: [[True] * len(words) for words in all])
    return Pool(scenes.ids, SceneTable(scenes), texts, np.arange(0, photos * captions + 1, captions), references)


def test_the_loss_is_the_mean_over_words_and_ends():
    model, pool = captioner(), split()
    total, tokens = 0.0, 0
    for row, words in enumerate(pool.texts.words):
        ids = torch.tensor([VOCABULARY.encode(words)])
        scene = pool.scenes.batch(torch.tensor([row // 2]))
        total -= float(model.log_prob(model.encode(scene), ids)[0].detach())
        tokens += len(words) + 1
    for batch in (1, 2, 64):
        assert math.isclose(token_loss(model, pool, batch), total / tokens, rel_tol=1e-5)


def test_the_loss_looks_at_a_photo_once_for_all_its_captions(monkeypatch):
    model, pool, looks = captioner(), split(photos=6, captions=4), []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda scenes: looks.extend(scenes.ids) or encode(scenes))
    token_loss(model, pool, batch=4)  # eight captions at a time: those of two photos
    assert looks == list(pool.ids)


def test_captions_are_those_of_one_photo_at_a_time():
    model, pool = captioner(), split()
    said = write_captions(Checkpoint(model, VOCABULARY), pool, QUICK)
    assert list(said) == list(pool.ids)
    scenes = pool.scenes.scenes
    for row, id in enumerate(pool.ids):
        words = greedy(model, rows(scenes, [row]), longest=19)[0]
        assert said[id].words[:3] == tuple(VOCABULARY.decode(words.tolist()))[:3]


def test_captions_that_repeat_a_reference_score_everything(monkeypatch):
    pool = split()
    said = {id: pool.references[row][0] for row, id in enumerate(pool.ids)}
    from sightline.caption import Caption

    monkeypatch.setattr(
        CAPTIONS,
        lambda *_, **__: {i: Caption(tuple(t.split())) for i, t in said.items()},
    )
    found = metrics_of(Checkpoint(captioner(), VOCABULARY), pool, QUICK)
    assert found["BLEU-1"] == pytest.approx(100)
    assert found["CIDEr"] > 100
    assert "loss" in found


def test_percentages_and_counts_are_not_multiplied(monkeypatch):
    pool = split()
    words = tuple(pool.references[0][0].split())
    from sightline.caption import Caption

    monkeypatch.setattr(CAPTIONS, lambda *_, **__: dict.fromkeys(pool.ids, Caption(words)))
    found = metrics_of(Checkpoint(captioner(), VOCABULARY), pool, replace(QUICK, metrics=("chair", "diversity")))
    assert found["length"] == len(words)
    assert found["vocabulary"] == len(set(words))
    assert 0 <= found["CHAIRs"] <= 100


def test_novel_words_are_measured_where_that_is_asked_for(monkeypatch):
    pool = split()
    pool = replace(pool, references=(("a zebra",), *pool.references[1:]))
    from sightline.caption import Caption

    monkeypatch.setattr(
        CAPTIONS,
        lambda *_, **__: {id: Caption(("a", "zebra")) for id in pool.ids},
    )
    found = metrics_of(Checkpoint(captioner(), VOCABULARY), pool, replace(QUICK, novel=True))
    precision = 1 / len(pool)
    assert found["F1 zebra"] == found["novel F1"] == pytest.approx(100 * 2 * precision / (precision + 1))
    assert "novel F1" not in metrics_of(Checkpoint(captioner(), VOCABULARY), pool, QUICK)


def test_a_pool_of_texts_alone_has_only_a_loss():
    found = metrics_of(Checkpoint(captioner(), VOCABULARY), replace(split(), references=()), QUICK)
    assert list(found) == ["loss"]


def test_the_model_is_left_in_the_mode_it_was_in():
    model = captioner().train()
    metrics_of(Checkpoint(model, VOCABULARY), split(), QUICK)
    assert model.training


def test_self_retrieval_names_pool_and_recalls():
    evaluation = replace(QUICK, self_retrieval=True)
    found = metrics_of(Checkpoint(captioner(), VOCABULARY), split(), evaluation)
    assert found["self-retrieval pool"] == 7
    assert found["self-retrieval R@50"] == 100


@pytest.mark.parametrize("kind", ["vsepp", "pos-scan"])
def test_recalls_are_those_of_the_whole_matrix(kind):
    torch.manual_seed(0)
    if kind == "vsepp":
        model = VSEPPConfig(region_width=REGION_WIDTH, size=6, word_size=5).build(WORDS).eval()
    else:
        model = POSSCANConfig(region_width=REGION_WIDTH, size=6, word_size=5).build(WORDS).eval()
    pool = split()
    found = metrics_of(Checkpoint(model, VOCABULARY), pool, QUICK)
    texts = replace(texts_of(pool.texts.ids.long()), tagged=pool.texts.tagged)
    scores = model(pool.scenes.scenes, texts).detach()
    hits = sum(int(scores[i].argmax()) // 2 == i for i in range(7))
    assert found["i2t R@1"] == pytest.approx(100 * hits / 7)
    hits = sum(int(scores[:, j].argmax()) == j // 2 for j in range(14))
    assert found["t2i R@1"] == pytest.approx(100 * hits / 14)
    assert found["rsum"] == pytest.approx(
        sum(found[f"{strategy} R@{k}"] for strategy in ("i2t", "t2i") for k in (1, 5, 10))
    )


def test_folds_are_ranked_apart():
    torch.manual_seed(0)
    model = VSEPPConfig(region_width=REGION_WIDTH, size=6, word_size=5).build(WORDS).eval()
    found = metrics_of(Checkpoint(model, VOCABULARY), split(), replace(QUICK, folds=2, fold_size=3))
    assert found["images"] == 3
    assert found["folds"] == 2


def test_more_folds_than_there_are_photos_are_refused():
    model = VSEPPConfig(region_width=REGION_WIDTH, size=6, word_size=5).build(WORDS).eval()
    with pytest.raises(ConfigError, match="2 folds of 1,000 photos are more than the"):
        metrics_of(Checkpoint(model, VOCABULARY), split(), replace(QUICK, folds=2, fold_size=1000))


def annotations(pool: Pool) -> dict[str, GroundedPhoto]:
    """For each photo two sentences, whose second word is grounded in its first region."""
    grounded = {}
    for row, id in enumerate(pool.ids):
        x1, y1, x2, y2 = (float(v) * 100 for v in pool.scenes.scenes.boxes[row, 0])
        word = GroundedWord(1, "thing", ((x1, y1, x2, y2),))
        sentences = (GroundedSentence(("word1", "word2", "word3"), (word,)), GroundedSentence(("word5", "word6"), ()))
        grounded[id] = GroundedPhoto(id, sentences, (100, 100))
    return grounded


def naive_accuracy(weights_of, pool: Pool) -> float:
    """Share of photos whose second word attends most to a region that overlaps the first one."""
    from box_samples import pixel_overlap as iou

    hits = 0
    for row in range(len(pool)):
        scenes = pool.scenes.batch(torch.tensor([row]))
        boxes = [tuple(float(v) * 100 for v in box) for box in scenes.boxes[0]]
        best = int(weights_of(scenes).argmax())
        hits += iou(boxes[best], boxes[0]) > 0.5
    return 100 * hits / len(pool)


def test_a_captioners_attention_accuracy_is_that_of_the_step_that_predicts_the_word():
    model, pool = captioner(), split()
    found = metrics_of(Checkpoint(model, VOCABULARY), pool, replace(QUICK, grounding=True), grounded=annotations(pool))
    ids = torch.tensor([VOCABULARY.encode(["word1", "word2", "word3"])])
    expected = naive_accuracy(lambda scenes: model(model.encode(scenes), ids).trace.regions[0, 1], pool)
    assert found["attention accuracy"] == pytest.approx(expected)
    assert found["attention oracle"] == 100
    assert {"F1_all", "F1_loc"} <= set(found)


def test_a_matchers_accuracy_forces_the_annotated_word_in():
    torch.manual_seed(0)
    model = POSSCANConfig(region_width=REGION_WIDTH, size=6, word_size=5).build(WORDS).eval()
    pool = split()
    found = metrics_of(Checkpoint(model, VOCABULARY), pool, replace(QUICK, grounding=True), grounded=annotations(pool))
    texts = texts_of(torch.tensor([VOCABULARY.encode(["word1", "word2", "word3"])]))
    marks = model.config.mark([["word1", "word2", "word3"]])[0]
    tagged = torch.tensor([[False, marks[0], True, marks[2], False]])

    def weights(scenes):
        images, sentence = model.embed_images(scenes), model.embed_texts(replace(texts, tagged=tagged))
        return model.alignment(images, sentence)[0, 2]

    assert found["attention accuracy"] == pytest.approx(naive_accuracy(weights, pool))


CLOTHES = Vocabulary(["a", "mans", "t-shirt", "tshirt", "hangs", "man", "'s", "dries", "outside"])


def hung_out(pool: Pool) -> tuple[Pool, dict[str, GroundedPhoto]]:
    """Each photo with two captions, and the same two annotated in the other order, as tokens: the shirt has a box."""
    text, other = "A man's t-shirt hangs , red .", "A t-shirt dries outside ."
    grounded = {}
    for row, id in enumerate(pool.ids):
        x1, y1, x2, y2 = (float(v) * 100 for v in pool.scenes.scenes.boxes[row, 0])
        shirt = ((x1, y1, x2, y2),)
        first = GroundedSentence(("A", "T-shirt", "dries", "outside", "."), (GroundedWord(1, "t-shirt", shirt),))
        tokens = ("A", "man", "'s", "t-shirt", "hangs", ",", "red", ".")
        grounded[id] = GroundedPhoto(
            id, (first, GroundedSentence(tokens, (GroundedWord(3, "t-shirt", shirt),))), (100, 100)
        )
    return replace(pool, texts=None, first=None, references=((text, other),) * len(pool)), grounded


@pytest.mark.parametrize(
    ("rule", "read", "places"),
    [
        ("self-critical", ("a tshirt dries outside", "a mans tshirt hangs red"), (1, 2)),
        ("scan", ("a t-shirt dries outside .", "a man 's t-shirt hangs , red ."), (1, 3)),
    ],
)
def test_annotated_sentences_are_read_as_the_training_captions_were(rule, read, places):
    torch.manual_seed(0)
    model = UpDownConfig(region_width=REGION_WIDTH, word_size=8, hidden_size=8, attention_size=8)
    captioner, given = model.build(len(CLOTHES)).eval(), []
    captioner.register_forward_pre_hook(lambda _, args: given.append(args[1]))
    pool, grounded = hung_out(split(1))
    found = metrics_of(Checkpoint(captioner, CLOTHES, rule), pool, replace(QUICK, grounding=True), grounded=grounded)
    expected = [CLOTHES.encode(words.split()) for words in read]
    assert [row[row != PAD].tolist() for row in given[-1]] == expected
    memory = captioner.encode(pool.scenes.batch(torch.tensor([0])))
    hits = 0
    for ids, place in zip(expected, places, strict=True):
        weights = captioner(memory, torch.tensor([ids])).trace.regions[0, place]
        hits += naive_accuracy(lambda _, weights=weights: weights, pool) / 2
    assert found["attention accuracy"] == pytest.approx(hits)


def test_a_sentence_that_no_caption_repeats_is_split_token_by_token():
    pool, grounded = hung_out(split(1))
    rule = named_rule("self-critical")
    first, second = [split_tokens(sentence.tokens, (), rule) for sentence in grounded[pool.ids[0]].sentences]
    assert first == (["a", "tshirt", "dries", "outside"], [0, 1, 2, 3, -1])
    assert second == (["a", "man", "s", "tshirt", "hangs", "red"], [0, 1, 2, 3, 4, -1, 5, -1])


def test_the_share_of_words_that_the_tagger_calls_no_noun_is_told():
    torch.manual_seed(0)
    model = POSSCANConfig(region_width=REGION_WIDTH, size=6, word_size=5).build(WORDS).eval()
    pool = split(1)
    box = ((0.0, 0.0, 50.0, 50.0),)
    words = (GroundedWord(1, "man", box), GroundedWord(2, "ride", box), GroundedWord(4, "horse", box))
    photo = GroundedPhoto(pool.ids[0], (GroundedSentence(("A", "man", "rides", "a", "horse"), words),), (100, 100))
    grounding = replace(QUICK, grounding=True)
    found = metrics_of(Checkpoint(model, VOCABULARY, "scan"), pool, grounding, grounded={photo.id: photo})
    assert found["forced words"] == pytest.approx(100 / 3)
    scan = SCANConfig(region_width=REGION_WIDTH, size=6, word_size=5).build(WORDS).eval()
    found = metrics_of(Checkpoint(scan, VOCABULARY, "scan"), pool, grounding, grounded={photo.id: photo})
    assert "forced words" not in found  # all words take part


def test_f1_counts_words_that_point_right(monkeypatch):
    model, pool = captioner(), split()
    from sightline.caption import Caption, WordTrace

    def pointing(first: bool):
        said = {}
        for row, id in enumerate(pool.ids):
            count = int(pool.scenes.scenes.region_mask[row].sum())
            weights = np.zeros(count, np.float32)
            weights[0 if first else count - 1] = 1
            said[id] = Caption(("thing",), 0.0, (WordTrace(regions=weights),))
        return said

    for first in (True, False):
        monkeypatch.setattr(CAPTIONS, lambda *_, f=first, **__: pointing(f))
        found = metrics_of(
            Checkpoint(model, VOCABULARY), pool, replace(QUICK, grounding=True), grounded=annotations(pool)
        )
        assert (found["F1_loc"] == pytest.approx(100)) == first


def test_grounding_without_annotations_or_regions_says_so():
    evaluation = replace(QUICK, grounding=True)
    with pytest.raises(ConfigError, match=r"data\.grounding"):
        metrics_of(Checkpoint(captioner(), VOCABULARY), split(), evaluation)
    model = AdaptiveAttentionConfig(grid_width=7, vector_width=9, word_size=8, hidden_size=8, attention_size=8)
    pool = split()
    with pytest.raises(ConfigError, match="attends to no regions"):
        metrics_of(Checkpoint(model.build(WORDS), VOCABULARY), pool, evaluation, grounded=annotations(pool))


def test_a_split_without_scenes_or_captions_says_so():
    with pytest.raises(ConfigError, match="no scenes"):
        metrics_of(Checkpoint(captioner(), VOCABULARY), replace(split(), scenes=None), QUICK)
    model = VSEPPConfig(region_width=REGION_WIDTH, size=6, word_size=5).build(WORDS)
    with pytest.raises(ConfigError, match="matching needs captions, and there are none"):
        metrics_of(Checkpoint(model, VOCABULARY), replace(split(), texts=None, first=None), QUICK)


def test_the_quick_form_is_greedy():
    quick = Evaluation(while_training=("cider", "bleu")).in_training()
    assert quick.strategy == Greedy()
    assert quick.metrics == ("cider", "bleu")


def test_the_quick_form_decodes_as_the_table_does_where_it_is_asked_to():
    whole = Evaluation(Beam(size=3), Rules(max_words=18), greedy_in_training=False, self_retrieval=True)
    quick = whole.in_training()
    assert (quick.strategy, quick.rules) == (Beam(size=3), Rules(max_words=18))
    assert not quick.self_retrieval


def test_captions_are_measured_by_the_share_of_words_with_sentiment():
    pool, checkpoint = split(), Checkpoint(captioner(), VOCABULARY)
    said = write_captions(checkpoint, pool, QUICK)
    liked = {said[id].words[0] for id in pool.ids[:2] if said[id].words}
    found = metrics_of(checkpoint, pool, QUICK, sentiment={"positive": frozenset(liked), "negative": frozenset()})
    words = [word for one in said.values() for word in one.words]
    assert found["positive words"] == pytest.approx(100 * sum(word in liked for word in words) / len(words))
    having = sum(any(word in liked for word in one.words) for one in said.values())
    assert having > 0
    assert found["captions with positive words"] == pytest.approx(100 * having / len(said))
    assert found["negative words"] == found["captions with negative words"] == 0
    assert "positive words" not in metrics_of(checkpoint, pool, QUICK)
