"""Which rows a step sees: everything once an epoch, the same for the same (seed, epoch, step), whoever draws."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

from captioner_contract import random_scenes
from objective_samples import VOCABULARY, make_pool
from sightline.batch import SceneBatch
from sightline.errors import ConfigError, CountError
from sightline.training.batches import SORTED, Batch, Batches, Batching, prefetch
from sightline.training.tensor_tables import Pool, SceneTable, TextTable

POOL = make_pool(10, 4, seed=3)


def rows(batch: Batch) -> tuple[list[int], list[int]]:
    return batch.photos.tolist(), [] if batch.captions is None else batch.captions.tolist()


def epoch_of(batches: Batches, epoch: int = 0) -> list[Batch]:
    return [batches.batch(epoch, step) for step in range(len(batches))]


@pytest.mark.parametrize("of", ["images", "pairs", "photos"])
def test_a_step_is_a_function_of_seed_epoch_and_step(of):
    one, other = (Batches(POOL, Batching(of, 3, 2), seed=7, negatives=2) for _ in range(2))
    for epoch, step in [(5, 1), (0, 2), (5, 1), (2, 0)]:
        assert rows(one.batch(epoch, step)) == rows(other.batch(epoch, step))
    different = [
        Batches(POOL, Batching(of, 3, 2), seed=8).batch(5, 1),
        one.batch(4, 1),
        one.batch(5, 2),
    ]
    assert all(rows(batch) != rows(one.batch(5, 1)) for batch in different)


def test_every_photo_is_seen_once_an_epoch_in_another_order_each_time():
    batches = Batches(POOL, Batching(size=5, captions=1), 0)
    orders = [[row for batch in epoch_of(batches, epoch) for row in batch.photos.tolist()] for epoch in range(3)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_every_caption_is_a_pair_once_an_epoch_with_its_photo():
    found = [rows(batch) for batch in epoch_of(Batches(POOL, Batching("pairs", 4), 0))]
    captions = [caption for _, some in found for caption in some]
    photos = [photo for some, _ in found for photo in some]
    assert sorted(captions) == list(range(40))
    assert photos == [caption // 4 for caption in captions]


def test_a_batch_holds_the_scenes_and_captions_of_its_rows():
    batch = Batches(POOL, Batching(size=3, captions=2), 1).batch(0, 0)
    assert batch.scenes.ids == tuple(POOL.ids[row] for row in batch.photos.tolist())
    assert batch.texts.words == tuple(POOL.texts.words[row] for row in batch.captions.tolist())
    assert (len(batch.texts), batch.negatives, batch.positives) == (6, (), None)


def test_captions_of_a_photo_are_a_random_run_of_consecutive_ones():
    starts = set()
    for step in range(30):
        photos, captions = rows(Batches(POOL, Batching(size=1, captions=3), step).batch(0, 0))
        first = captions[0]
        assert captions == [first, first + 1, first + 2]
        assert 4 * photos[0] <= first <= 4 * photos[0] + 1
        starts.add(first - 4 * photos[0])
    assert starts == {0, 1}


def test_of_fewer_captions_some_are_taken_twice():
    photos, captions = rows(Batches(POOL, Batching(size=10, captions=6), 0).batch(0, 0))
    assert [caption // 4 for caption in captions] == np.repeat(photos, 6).tolist()


def test_batches_of_photos_have_no_captions_and_need_none():
    batch = Batches(Pool(POOL.ids, POOL.scenes), Batching("photos", 3), 0, negatives=2).batch(0, 0)
    assert (batch.texts, batch.captions, batch.negatives, len(batch.scenes)) == (None, None, (), 3)


def test_a_last_batch_that_is_not_full_is_left_out_unless_it_is_the_only_one():
    assert len(Batches(POOL, Batching(size=4), 0)) == 2
    only = Batches(POOL, Batching(size=64, captions=1), 0)
    assert len(only) == 1
    assert sorted(only.batch(0, 0).photos.tolist()) == list(range(10))


@pytest.mark.parametrize("of", ["images", "pairs"])
def test_negatives_are_captions_of_other_photos_and_differ(of):
    sentences = {words: row // 4 for row, words in enumerate(POOL.texts.words)}
    batch = Batches(POOL, Batching(of, 5, 2), 0, negatives=3).batch(0, 0)
    owners = batch.photos.tolist() if of == "pairs" else np.repeat(batch.photos.tolist(), 2).tolist()
    assert len(batch.negatives) == 3
    for texts in batch.negatives:
        assert len(texts) == len(batch.texts)
        assert all(sentences[words] != owner for words, owner in zip(texts.words, owners, strict=True))
    assert len({texts.words for texts in batch.negatives}) == 3


@pytest.mark.parametrize("of", ["images", "pairs", "photos"])
@pytest.mark.parametrize("world", [2, 3])
def test_the_parts_of_all_processes_are_the_batch_of_one(of, world):
    batches = Batches(POOL, Batching(of, 7, 2), 0, negatives=1)
    whole = batches.batch(1, 0)
    parts = [batches.batch(1, 0, rank, world) for rank in range(world)]
    per_photo = 2 if of == "images" else 1
    for rank, part in enumerate(parts):
        assert part.photos.tolist() == whole.photos[rank::world].tolist()
        if of != "photos":
            mine = whole.captions.view(-1, per_photo)[rank::world].flatten()
            assert part.captions.tolist() == mine.tolist()
            others = [whole.negatives[0].words[i : i + per_photo] for i in range(0, len(whole.captions), per_photo)]
            assert part.negatives[0].words == sum(others[rank::world], ())


def test_more_processes_than_rows_are_refused():
    with pytest.raises(ConfigError, match=r"4 processes share a batch of 3. To fix: set batch.size to 4 or more"):
        Batches(POOL, Batching(size=3), 0).batch(0, 0, 0, 4)


def test_positives_are_put_beside_words_and_regions_and_are_minus_one_elsewhere():
    pool = make_pool(2, 1, seed=0)
    regions = pool.scenes.scenes.regions.shape[1]
    length = int(pool.texts.lengths[0])
    known = torch.rand(length + 5, regions)  # longer than the captions of the batch
    batches = Batches(replace(pool, positives={0: known}), Batching("pairs", 2), 0, positives=True)
    batch = batches.batch(0, 0)
    width = batch.texts.ids.shape[1]
    for row, caption in enumerate(batch.captions.tolist()):
        expected = known[:width] if caption == 0 else torch.full((width, regions), -1.0)
        assert torch.equal(batch.positives[row], expected)


def test_what_cannot_be_made_is_named():
    bare = Pool(POOL.ids, POOL.scenes)
    with pytest.raises(ConfigError, match="batches of images need captions"):
        Batches(bare, Batching(), 0)
    for key in ("size", "captions"):
        with pytest.raises(ConfigError, match=f"`batch.{key}` is 0"):
            Batching(**{key: 0})
    with pytest.raises(CountError, match="there is nothing to train on"):
        Batches(Pool(()), Batching("photos"), 0)
    with pytest.raises(ConfigError, match="grounding annotations are needed"):
        Batches(POOL, Batching(size=2), 0, positives=True).batch(0, 0)
    texts = TextTable.build([["word1"]], VOCABULARY)
    lonely = Pool(("a",), SceneTable(random_scenes(1)), texts, np.array([0, 1]))
    with pytest.raises(CountError, match="captions of another photo are needed, and there is one photo"):
        Batches(lonely, Batching(size=1), 0, negatives=1).batch(0, 0)
    silent = Pool(("a", "b"), SceneTable(random_scenes(2)), texts, np.array([0, 1, 1]))
    with pytest.raises(CountError, match="photo b has no caption"):
        Batches(silent, Batching(size=2), 0).batch(0, 0)


def varied_pool(count: int) -> Pool:
    """Sentences of 1 to 30 words."""
    lengths = np.random.default_rng(0).integers(1, 31, size=count)
    texts = TextTable.build([["word1"] * length for length in lengths], VOCABULARY)
    return Pool(tuple(map(str, range(count))), None, texts, np.arange(count + 1))


VARIED = varied_pool(SORTED * 4 + 30)  # batches of 4: some that are sorted together, then 7, then 2 rows too many
BY_LENGTH = Batching("pairs", 4, by_length=True)


def captions_of(batches: Batches, epoch: int) -> list[tuple[int, ...]]:
    return [tuple(batch.captions.tolist()) for batch in epoch_of(batches, epoch)]


@pytest.mark.parametrize("epoch", [0, 3])
def test_captions_sorted_by_length_are_those_of_the_naive_way_in_another_order(epoch):
    found = captions_of(Batches(VARIED, BY_LENGTH, 5), epoch)
    drawn = np.random.default_rng([5, epoch]).permutation(len(VARIED)).tolist()[:-2]
    expected = []
    for together in (drawn[: SORTED * 4], drawn[SORTED * 4 :]):
        together = sorted(together, key=lambda row: len(VARIED.texts.words[row]))
        expected += [tuple(together[start : start + 4]) for start in range(0, len(together), 4)]
    assert sorted(found) == sorted(expected)
    assert found != expected


def test_every_caption_is_drawn_once_an_epoch_and_any_may_be_left_out():
    batches = Batches(VARIED, BY_LENGTH, 0)
    left_out = set()
    for epoch in range(40):
        rows_drawn = [row for some in captions_of(batches, epoch) for row in some]
        assert len(rows_drawn) == len(set(rows_drawn)) == len(VARIED) - 2
        left_out |= set(range(len(VARIED))) - set(rows_drawn)
    assert len(left_out) > 50
    assert len({len(VARIED.texts.words[row]) for row in left_out}) > 15


def test_batches_by_length_have_little_padding_and_come_in_random_order():
    longest = {}
    for by_length in (False, True):
        batches = Batches(VARIED, replace(BY_LENGTH, by_length=by_length), 0)
        longest[by_length] = [batch.texts.ids.shape[1] for batch in epoch_of(batches)]
    words = VARIED.texts.lengths.float().mean()
    assert np.mean(longest[True]) < words + 1.5 < 0.8 * np.mean(longest[False])
    assert abs(np.corrcoef(longest[True], np.arange(len(longest[True])))[0, 1]) < 0.3


def test_batches_by_length_are_a_function_of_seed_epoch_and_step():
    one, other = (Batches(VARIED, BY_LENGTH, seed=7) for _ in range(2))
    whole = {epoch: captions_of(one, epoch) for epoch in range(3)}
    for epoch, step in [(2, 5), (0, 56), (2, 5), (1, 0)]:
        assert tuple(other.batch(epoch, step).captions.tolist()) == whole[epoch][step]
    assert sorted(whole[0]) != sorted(whole[1])
    assert captions_of(Batches(VARIED, BY_LENGTH, seed=8), 0) != whole[0]
    with closing(prefetch(other, 2, range(20, 60))) as feed:  # as after a stop in an epoch of 28 steps
        found = [[tuple(batch.captions.tolist()) for batch in some] for some in feed]
    assert found == [whole[step // 28][step % 28 * 2 : step % 28 * 2 + 2] for step in range(20, 60)]


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_a_batch_of_similar_length(world):
    whole = Batches(VARIED, BY_LENGTH, 0)
    for rank in range(world):
        own = Batches(VARIED, BY_LENGTH, 0)
        for step in range(len(own)):
            part = own.batch(1, step, rank, world).captions
            assert part.tolist() == whole.batch(1, step).captions[rank::world].tolist()


def test_one_batch_that_is_not_full_has_every_caption():
    only = Batches(VARIED, replace(BY_LENGTH, size=1000), 0)
    assert len(only) == 1
    assert sorted(only.batch(0, 0).captions.tolist()) == list(range(len(VARIED)))


@pytest.mark.parametrize("of", ["images", "photos"])
def test_only_pairs_have_a_length(of):
    with pytest.raises(ConfigError, match=f"batches are of {of}. To fix: set batch.of to pairs"):
        Batching(of, by_length=True)


def test_every_tensor_that_objectives_compute_with_is_moved():
    pool = replace(POOL, positives={})
    batch = Batches(pool, Batching(size=2), 0, negatives=1, positives=True).batch(0, 0).to("meta")
    moved = [batch.scenes.regions, batch.texts.ids, batch.negatives[0].ids, batch.positives]
    assert {tensor.device.type for tensor in moved} == {"meta"}
    alone = Batches(POOL, Batching("photos", 2), 0).batch(0, 0).to("meta")
    assert (alone.texts, alone.positives, alone.scenes.regions.device.type) == (None, None, "meta")
    assert Batch(torch.tensor([0])).to("meta").scenes is None


@pytest.mark.parametrize(("accumulate", "first"), [(1, 0), (2, 3), (3, 0)])
def test_prefetched_batches_are_those_of_each_step(accumulate, first):
    batches = Batches(POOL, Batching(size=2, captions=1), 0)  # 5 an epoch
    per_epoch = 5 // accumulate
    with closing(prefetch(batches, accumulate, range(first, 9))) as feed:
        found = [[rows(batch) for batch in some] for some in feed]
    expected = [
        [rows(batches.batch(step // per_epoch, step % per_epoch * accumulate + i)) for i in range(accumulate)]
        for step in range(first, 9)
    ]
    assert found == expected


def test_prefetching_passes_errors_on_and_nothing_is_nothing():
    batches = Batches(POOL, Batching(size=2), 0)
    with closing(prefetch(batches, 1, range(3, 3))) as feed:
        assert list(feed) == []
    with closing(prefetch(batches, 1, range(3), 0, 9)) as feed, pytest.raises(ConfigError, match="9 processes"):
        next(feed)


def test_a_batch_of_another_pool_beside_each_has_epochs_of_its_own_and_depends_on_nothing_else():
    texts = make_pool(7, 1, seed=5)
    batching = Batching("pairs", 2, pool="corpus")
    beside, alone = (Batches(texts, batching, seed=1) for _ in range(2))
    both = Batches(POOL, Batching("photos", 4), seed=1, beside=beside)
    assert (len(both), len(alone)) == (2, 3)
    places = [divmod(number, len(both)) for number in range(7)]
    for number in (5, 0, 6, 3, 5):  # in any order, as when a run goes on
        batch = both.batch(*places[number])
        assert rows(batch.beside) == rows(alone.batch(*divmod(number, len(alone))))
        assert rows(batch) == rows(Batches(POOL, Batching("photos", 4), seed=1).batch(*places[number]))
    seen = [row for number in range(3) for row in both.batch(*places[number]).beside.captions.tolist()]
    assert len(set(seen)) == 6
    halves = [both.batch(*places[4], rank, 2).beside for rank in range(2)]
    assert sorted(row for half in halves for row in half.captions.tolist()) == sorted(
        alone.batch(*divmod(4, len(alone))).captions.tolist()
    )
    assert both.batch(0, 0).to("cpu").beside.texts is not None


VIEWS = 3


def pool_with_views(count: int) -> Pool:
    """Photos whose vector tells which photo and which view it is: photo + view / 10."""
    marks = torch.arange(count).repeat_interleave(VIEWS) + torch.arange(VIEWS).repeat(count) / 10
    ids = tuple(f"photo {i}" for i in range(count))
    repeated = tuple(id for id in ids for _ in range(VIEWS))
    scenes = SceneBatch(repeated, vector=marks[:, None], grid_shapes=(None,) * len(repeated))
    return Pool(ids, SceneTable(scenes, VIEWS))


def test_the_views_of_a_step_are_the_same_whatever_else_is_drawn_meanwhile():
    def views_of_a_run() -> list[list[float]]:
        seen = []
        batches = Batches(pool_with_views(40), Batching("photos", 8), seed=1)
        with closing(prefetch(batches, 1, range(10))) as feed:
            for (batch,) in feed:
                torch.manual_seed(0)  # as the loop does at every step, while the thread makes the next batch
                torch.rand(10_000)
                seen.append(batch.scenes.vector[:, 0].tolist())
        return seen

    runs = [views_of_a_run() for _ in range(4)]
    assert all(run == runs[0] for run in runs)
    batches = Batches(pool_with_views(40), Batching("photos", 8), seed=1)
    torch.manual_seed(99)
    assert runs[0][7] == batches.batch(1, 2).scenes.vector[:, 0].tolist()  # as a run that goes on there sees it


def test_every_view_is_drawn_about_as_often_and_processes_share_what_was_drawn():
    batches = Batches(pool_with_views(300), Batching("photos", 300), seed=0)
    vectors = batches.batch(0, 0).scenes.vector[:, 0]
    views = (vectors * 10).round().long() % 10
    assert torch.bincount(views).min() > 70
    parts = [batches.batch(0, 0, rank, 2).scenes.vector[:, 0] for rank in range(2)]
    assert torch.equal(torch.stack(parts, 1).flatten(), vectors)
