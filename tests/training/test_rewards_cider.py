"""CIDEr-D on the device of the samples: the scores of `CiderDReward`, whose own tests hold it to the metric."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from objective_samples import VOCABULARY, make_context, make_pool
from sightline.metrics.cider_reward import CiderDReward
from sightline.text.vocabulary import END, PAD, START
from sightline.training.batches import Batch
from sightline.training.rewards import CiderReward, DeviceCiderD
from sightline.training.tensor_tables import Pool, TextTable

SENTENCE = st.lists(st.integers(3, 7), max_size=9)
REFERENCES = st.lists(st.lists(SENTENCE, min_size=1, max_size=4), min_size=2, max_size=5)


def padded(sentences: list[list[int]], width: int) -> list[list[int]]:
    return [[*words, *[PAD] * (width - len(words))] for words in sentences]


@given(st.data())
def test_scores_are_those_of_the_scorer_on_the_host(data):
    references = data.draw(REFERENCES)
    copies = data.draw(st.integers(1, 3))
    word = st.integers(3, 70)  # some are unknown to every reference, and some have more bits than these
    sentence = st.lists(word | st.integers(3, 7), max_size=9)
    samples = [[data.draw(sentence) for _ in range(copies)] for _ in references]
    cut = data.draw(st.booleans())  # a sample that was cut has no END
    end = [] if cut else [END]
    width = max(1, max(len(words) + len(end) for own in samples for words in own))
    ids = torch.tensor([padded([[*words, *end] for words in own], width) for own in samples])
    most, longest = max(map(len, references)), 1 + max(len(words) for own in references for words in own)
    theirs = [[[*words, END] for words in own] + [[]] * (most - len(own)) for own in references]
    scorer = CiderDReward(references)
    photos = np.repeat(np.arange(len(references)), copies)
    expected = torch.from_numpy(scorer(photos, ids.flatten(0, 1).numpy())).view(len(references), copies)
    scores = DeviceCiderD(scorer, torch.device("cpu"))(ids, torch.tensor([padded(own, longest) for own in theirs]))
    torch.testing.assert_close(scores, expected.float(), atol=1e-4, rtol=1e-5)


def test_the_reward_compares_samples_with_the_references_of_their_photos():
    counts = [1, 4, 2, 3]  # captions of each photo
    whole = make_pool(photos=5, captions=2)
    first = np.concatenate([[0], np.cumsum(counts)])
    pool = Pool(whole.ids[:4], None, TextTable.build(whole.texts.words, VOCABULARY), first)
    reward = CiderReward().build(make_context(pool))
    photos = torch.tensor([3, 0, 1, 1])
    said = [pool.texts.ids[first[photo]].tolist() for photo in photos]  # each photo's first reference
    samples = torch.tensor([[ids, [START, 5, 6, *[PAD] * (len(ids) - 3)]] for ids in said])  # and a cut sample
    captions = [VOCABULARY.encode(words)[1:-1] for words in pool.texts.words]
    scorer = CiderDReward([captions[start:stop] for start, stop in pairwise(first.tolist())])
    expected = scorer(photos.repeat_interleave(2).numpy(), samples[..., 1:].flatten(0, 1).numpy())
    scores = reward(Batch(photos), samples)
    torch.testing.assert_close(scores, torch.from_numpy(expected).view(4, 2).float(), atol=1e-4, rtol=1e-5)
    assert (scores[:, 0] > scores[:, 1]).all()
