"""Pickles read without running them, and the vocabularies and document frequencies inside."""

from __future__ import annotations

import argparse
import gzip
import json
import pickle
import sys
import types
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data import pickle_formats
from sightline.data.format import Probe
from sightline.data.pickle_formats import read_document_frequencies, read_vocabulary
from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, Inert, Namespace, load, load_path
from sightline.errors import CountError, DataError, TruncatedError

WORDS = ["<pad>", "<start>", "<end>", "<unk>", "a", "café", "dog"]
FREQUENCIES = {("a",): 3.0, ("a", "dog"): 2.0}


def read(raw: bytes, allowed: dict[str, type] = CONTAINERS) -> Any:
    return load(raw, allowed)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_plain_values_are_what_pickle_makes_of_them(protocol: int, value: Any) -> None:
    assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_containers_and_options_are_read(protocol: int) -> None:
    value = {
        "ordered": OrderedDict(b=1, a=2),
        "counts": defaultdict(float, {"x": 1.5}),
        "set": {1, 2},
        "opt": argparse.Namespace(lr=0.1, names=["x"]),
    }
    found = read(pickle.dumps(value, protocol))
    assert list(found["ordered"].items()) == [("b", 1), ("a", 2)]
    assert found["counts"] == {"x": 1.5}
    assert found["set"] == {1, 2}
    assert type(found["opt"]) is Namespace
    assert vars(found["opt"]) == {"lr": 0.1, "names": ["x"]}


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("number", [np.float64(2.5), np.float32(-1), np.int64(7), np.bool_(True)])
def test_numpy_numbers_become_python_numbers(number: Any, protocol: int, module: bytes) -> None:
    raw = pickle.dumps({"n": number}, protocol)
    found = read(_renamed(raw, b"numpy._core.multiarray", module, protocol), CONTAINERS | NUMBERS)["n"]
    assert found == number.item()
    assert type(found) is type(number.item())


def _renamed(raw: bytes, old: bytes, new: bytes, protocol: int) -> bytes:
    if protocol < 4:  # names end at a line break; later protocols count their bytes
        return raw.replace(old, new)
    short = bytes([len(old)]) + old
    framed = raw.replace(b"\x8c" + short, b"\x8c" + bytes([len(new)]) + new)
    return framed if old == new else _unframed(framed)


def _unframed(raw: bytes) -> bytes:
    assert raw[2:3] == b"\x95"
    return raw[:2] + raw[11:]


def test_a_python_2_number_is_read_from_its_latin_1_bytes() -> None:
    packed = np.float64(np.pi).tobytes()
    raw = (
        b"\x80\x02cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nU\x02f8K\x00K\x01\x87R"
        b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbU\x08" + packed + b"\x86R."
    )
    assert read(raw, NUMBERS) == np.pi


class Evil:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], tuple(self.call[1:])


@pytest.mark.parametrize("call", [(exec, "raise SystemExit"), (open, "/etc/passwd"), (getattr, {}, "get")])
def test_a_function_call_is_refused_and_not_made(call: Any) -> None:
    with pytest.raises(DataError, match=rf"refused: it asks for \S+\.{call[0].__name__}"):
        read(pickle.dumps(Evil(*call)))


@pytest.mark.parametrize(
    "raw",
    [
        b"cargparse\nNamespace\n(N}U\x08__eq__xxK\x01stb.",  # attributes of the class itself
        b"cargparse\nNamespace\nN}X\x06\x00\x00\x00__eq__K\x01s\x86b.",
        b"c_codecs\nencode\n(N}X\x06\x00\x00\x00__eq__K\x01stb.",
        b"ccopyreg\n_reconstructor\n(cbuiltins\nfloat\ncbuiltins\nobject\nNtR.",
        b"c_codecs\nencode\n(Vx\nVutf-8\ntR.",
        b"cargparse\nNamespace\n)\x81K\x01b.",  # a state that is no dict
        b"\x80\x02K\x01Q.",  # an object that is elsewhere
    ],
)
def test_tricks_with_the_allowed_classes_are_refused(raw: bytes) -> None:
    with pytest.raises(DataError):
        read(raw)
    assert Namespace.__eq__ is object.__eq__


@pytest.mark.parametrize(
    "raw",
    [
        b"cnumpy\ndtype\n(VO8\nI0\nI1\ntR.",  # objects are pointers
        b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(Vf8\ntRVshort\ntR.",
        b"cnumpy\ndtype\n(Vf8\ntR(I3\nVx\ntb.",
    ],
)
def test_numpy_types_that_are_no_plain_numbers_are_refused(raw: bytes) -> None:
    with pytest.raises(DataError, match="refused"):
        read(raw, NUMBERS)


@given(keep=st.integers(0, 200), data=st.data())
def test_a_damaged_pickle_never_escapes_as_another_kind_of_error(keep: int, data: st.DataObject) -> None:
    raw = bytearray(pickle.dumps({"document_frequency": defaultdict(float, FREQUENCIES), "ref_len": np.float64(3)}))
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
        raw[place] = data.draw(st.integers(0, 255))
    try:
        read(bytes(raw[: max(keep, 1)]), CONTAINERS | NUMBERS)
    except DataError as error:
        assert str(error)  # noqa: PT017 - any outcome but another exception is right


@pytest.mark.parametrize("length", [1 << 40, 1 << 62, (1 << 64) - 1])
@pytest.mark.parametrize("code", [b"\x8d", b"\x8e", b"\x96", b"\x95"], ids=["text", "bytes", "bytearray", "frame"])
def test_a_pickle_that_declares_more_bytes_than_it_has_costs_no_memory(code: bytes, length: int) -> None:
    with pytest.raises(DataError):
        read(b"\x80\x05" + code + length.to_bytes(8, "little") + b"x.")


def test_a_number_that_takes_long_to_hash_is_refused() -> None:
    assert read(pickle.dumps(2**2000, 2)) == 2**2000
    with pytest.raises(DataError, match="more than 255 bytes"):
        read(pickle.dumps(2**4000, 2))


@pytest.mark.parametrize("keep", [2, 5, -1])
def test_a_cut_pickle_is_a_truncation(keep: int) -> None:
    with pytest.raises(TruncatedError, match="ends too early"):
        read(pickle.dumps({"a": [1, 2, 3]})[:keep])


def test_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.p"
    path.write_bytes(pickle.dumps(Evil(exec, "1")))
    with pytest.raises(DataError, match=r"x\.p: the pickle is refused"):
        load_path(path)


def vocabulary(words: list[str] = WORDS) -> dict[str, Any]:
    return {"word2idx": {w: i for i, w in enumerate(words)}, "idx2word": dict(enumerate(words)), "idx": len(words)}


def pickled_vocabulary(attributes: dict[str, Any], module: str = "vocab", protocol: int = 2) -> bytes:
    """What VSRN's `vocab.py` writes: an object of a class that is not here when it is read."""
    home = types.ModuleType(module)
    home.Vocabulary = type("Vocabulary", (), {"__module__": module})  # type: ignore[attr-defined]
    made = home.Vocabulary()
    vars(made).update(attributes)
    packages = ("misc", "misc.SCAN")
    with pytest.MonkeyPatch.context() as patch:
        for name in (*packages, module):
            patch.setitem(sys.modules, name, home)
        return pickle.dumps(made, protocol)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("module", ["vocab", "misc.SCAN.vocab", "__main__x"])
def test_a_pickled_vocabulary_gives_its_words_in_order(module: str, protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "f30k_precomp_vocab.pkl"
    path.write_bytes(pickled_vocabulary(vocabulary(), module, protocol))
    assert read_vocabulary(path) == WORDS
    assert pickle_formats.VOCABULARY.matches(Probe(path))
    report = pickle_formats.VOCABULARY.inspect(path)
    assert report.counts == {"words": len(WORDS)}
    assert report.notes == ()


def test_a_python_2_object_of_an_old_class_is_read(tmp_path: Path) -> None:
    path = tmp_path / "vocab.pkl"
    path.write_bytes(b"(ivocab\nVocabulary\n(dS'idx'\nI1\nsS'word2idx'\n(dS'a'\nI0\nssS'idx2word'\n(dI0\nS'a'\nssb.")
    assert read_vocabulary(path) == ["a"]


def test_a_json_vocabulary_gives_its_words_in_order(tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(vocabulary()))
    assert read_vocabulary(path) == WORDS
    assert pickle_formats.VOCABULARY.matches(Probe(path))


BROKEN: dict[str, tuple[type[DataError], dict[str, Any]]] = {
    "no words": (DataError, {"idx": 3}),
    "a gap": (DataError, {"word2idx": {"a": 0, "b": 2}, "idx2word": {0: "a", 2: "b"}}),
    "tables that disagree": (DataError, {"word2idx": {"a": 0, "b": 1}, "idx2word": {0: "b", 1: "a"}}),
    "a word too few": (CountError, {"word2idx": {"a": 0, "b": 1}, "idx2word": {0: "a"}}),
}


@pytest.mark.parametrize("kind", ["json", "pkl"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_vocabulary_is_named_by_reading_and_listed_by_inspection(name: str, kind: str, tmp_path: Path) -> None:
    error, parts = BROKEN[name]
    path = tmp_path / f"vocab.{kind}"
    path.write_bytes(json.dumps(parts).encode() if kind == "json" else pickled_vocabulary(parts))
    with pytest.raises(error) as caught:
        read_vocabulary(path)
    assert str(path) in str(caught.value)
    assert pickle_formats.VOCABULARY.inspect(path).problems == (str(caught.value),)


def test_a_vocabulary_that_hides_a_call_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.pkl"
    path.write_bytes(pickled_vocabulary({"word2idx": Evil(exec, "raise SystemExit"), "idx2word": {}}))
    with pytest.raises(DataError, match="refused"):
        read_vocabulary(path)
    assert pickle_formats.VOCABULARY.inspect(path).problem_count == 1


def test_a_gzipped_vocabulary_is_the_same_words(tmp_path: Path) -> None:
    words = [*pickle_formats.SPECIAL, "dog"]
    parts = {"word2idx": {word: i for i, word in enumerate(words)}, "idx2word": dict(enumerate(words)), "idx": 5}
    path = tmp_path / "vocab.json.gz"
    path.write_bytes(gzip.compress(json.dumps(parts).encode()))
    assert pickle_formats.VOCABULARY.matches(Probe(path))
    assert read_vocabulary(path) == words
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(TruncatedError, match=r"vocab\.json\.gz"):
        read_vocabulary(path)


def test_another_order_of_special_words_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(vocabulary(["a", "b", "c", "d"])))
    assert "a, b, c, d" in pickle_formats.VOCABULARY.inspect(path).notes[0]


@pytest.mark.parametrize("ref_len", [3, 3.0, np.float64(3)])
@pytest.mark.parametrize("table", [dict, lambda pairs: defaultdict(float, pairs)])
@pytest.mark.parametrize("protocol", [2, 4])
def test_document_frequencies_are_read_as_stored(protocol: int, table: Any, ref_len: Any, tmp_path: Path) -> None:
    path = tmp_path / "coco-train-words.p"
    path.write_bytes(pickle.dumps({"document_frequency": table(FREQUENCIES), "ref_len": ref_len}, protocol))
    counts, length, layout = read_document_frequencies(path)
    assert type(counts) is dict
    assert counts == FREQUENCIES
    assert (length, layout) == (3.0, "words")
    assert pickle_formats.FREQUENCIES.matches(Probe(path))
    assert pickle_formats.FREQUENCIES.inspect(path).counts == {"n-grams": 2, "images": "3", "of": "words"}


def test_document_frequencies_of_word_ids_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "coco-train-idxs.p"
    path.write_bytes(pickle.dumps({"document_frequency": {("12", "7", "0"): 4.0}, "ref_len": 9}, 2))
    assert read_document_frequencies(path).layout == "ids"


@pytest.mark.parametrize(
    "value",
    [
        ["document_frequency"],
        {"document_frequency": {("a",): 1.0}},
        {"document_frequency": {"a b": 1.0}, "ref_len": 3},
        {"document_frequency": {("a",): "many"}, "ref_len": 3},
        {"document_frequency": {("a",): 10**400}, "ref_len": 3},
        {"document_frequency": Evil(exec, "raise SystemExit"), "ref_len": 3},
    ],
)
def test_broken_document_frequencies_are_named_by_reading_and_listed_by_inspection(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "coco-train-words.p"
    path.write_bytes(pickle.dumps(value, 2))
    with pytest.raises(DataError) as caught:
        read_document_frequencies(path)
    assert str(path) in str(caught.value)
    assert pickle_formats.FREQUENCIES.matches(Probe(path))
    assert pickle_formats.FREQUENCIES.inspect(path).problems == (str(caught.value),)


def test_an_inert_object_keeps_attributes_and_nothing_else() -> None:
    class Model(Inert):
        pass

    raw = pickled_vocabulary({"a": 1}).replace(b"Vocabulary", b"Model")
    found = read(raw, {"Model": Model})
    assert type(found) is Model
    assert vars(found) == {"a": 1}
