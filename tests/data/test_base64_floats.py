"""The table decoder of base64 against the standard library's."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.base64_floats import decode, decode_floats


@given(st.binary(max_size=300))
def test_any_bytes_decode_as_the_standard_library_decodes_them(raw: bytes) -> None:
    assert decode(base64.b64encode(raw)).tobytes() == raw


@pytest.mark.parametrize("size", [0, 1, 49151, 49152, 49153, 100_000])
def test_texts_longer_than_a_block_decode_whole(size: int) -> None:
    raw = np.random.default_rng(size).bytes(size)
    assert decode(memoryview(base64.b64encode(raw))).tobytes() == raw


@given(st.binary(min_size=12, max_size=60), st.integers(0), st.sampled_from(b" \n\t-_=*\x00\xff"))
def test_a_foreign_character_is_refused_wherever_it_stands(raw: bytes, place: int, character: int) -> None:
    text = bytearray(base64.b64encode(raw))
    place %= len(text) - 4  # padding is allowed in the last four
    text[place] = character
    with pytest.raises(ValueError, match="base64"):
        decode(bytes(text))


def test_a_length_that_is_no_multiple_of_four_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of four"):
        decode(b"AAAAA")


def test_floats_keep_every_bit() -> None:
    values = np.array([0.0, -0.0, 1e-45, np.pi, np.inf, -3.4e38], dtype="<f4")
    found = decode_floats(base64.b64encode(values.tobytes()))
    assert found.tobytes() == values.tobytes()


def test_bytes_that_are_no_whole_floats_are_refused() -> None:
    with pytest.raises(ValueError, match="whole float32"):
        decode_floats(base64.b64encode(b"12345"))
