"""Captions that ended are left out of later steps, and the others are where they were."""

from __future__ import annotations

import pytest
import torch

from sightline.errors import CountError
from sightline.models.packed_captions import ActiveRows, PackedCaptions
from sightline.text.vocabulary import PAD, START

MEMORY = {"gates": torch.tensor([[100.0], [200.0]])}
WORDS = torch.tensor([[START, 11, 12, PAD], [START, 21, PAD, PAD], [START, 31, 32, 33], [START, 41, PAD, 43]])


def read(words: torch.Tensor, to_end: bool) -> tuple[PackedCaptions, list[torch.Tensor]]:
    """A model whose state is the sum of the words it read, and that says this and its image's number."""
    reading = PackedCaptions(words, MEMORY, to_end)
    state, said = {"sum": torch.zeros(len(words), 1)}, []
    for step, rows in zip(reading.words, reading.rows, strict=True):
        state = {"sum": rows.of(state)["sum"] + step.unsqueeze(1)}
        met = rows.per_image(state["sum"], MEMORY) + MEMORY["gates"].unsqueeze(1)
        torch.testing.assert_close(rows.flat(met), rows.plus_image(state["sum"].clone(), MEMORY, "gates"))
        said.append(rows.flat(met))
    return reading, said


def test_each_caption_is_read_to_its_last_word_by_its_own_state_and_image():
    reading, said = read(WORDS, to_end=True)
    assert [len(step) for step in said] == [4, 4, 3, 2]
    found = reading.join(said).squeeze(2)
    for row in range(4):
        last = max(t for t in range(4) if WORDS[row, t] != PAD)
        for t in range(4):
            expected = WORDS[row, : t + 1].sum() + (100 if row < 2 else 200) if t <= last else 0
            assert found[row, t] == expected


def test_reading_everything_gives_the_same_where_there_are_words():
    whole, said = read(WORDS, to_end=False)
    assert [len(step) for step in said] == [4] * 4
    shorter, less = read(WORDS, to_end=True)
    going = shorter.join(less) != 0
    torch.testing.assert_close(whole.join(said)[going], shorter.join(less)[going])


def test_an_image_has_only_as_many_places_as_its_captions_that_go_on():
    reading = PackedCaptions(WORDS, MEMORY, to_end=True)
    assert reading.rows[2].per_image(torch.ones(3, 1), MEMORY).squeeze(2).tolist() == [[1, 0], [1, 1]]
    assert reading.rows[3].per_image(torch.ones(2, 1), MEMORY).squeeze(2).tolist() == [[0, 0], [1, 1]]


def test_steps_of_padding_alone_have_no_rows():
    reading, said = read(torch.tensor([[START, PAD], [START, PAD]]), to_end=True)
    assert [len(step) for step in said] == [2, 0]
    assert reading.join(said).squeeze(2).tolist() == [[101, 0], [201, 0]]


def test_captions_that_end_together_are_all_computed_at_every_step():
    assert all(rows[:2] == (None, None) for rows in PackedCaptions(torch.full((4, 3), 7), MEMORY, to_end=True).rows)


def test_captions_that_the_images_cannot_share_are_refused():
    with pytest.raises(CountError, match="3 captions for 2 images"):
        PackedCaptions(WORDS[:3], MEMORY, to_end=True)


def test_without_gradients_rows_are_written_into():
    rows = torch.zeros(4, 1)
    with torch.no_grad():
        assert ActiveRows().plus_image(rows, MEMORY, "gates").data_ptr() == rows.data_ptr()
