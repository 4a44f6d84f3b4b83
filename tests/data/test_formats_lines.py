"""Formats of one record per line: Flickr captions, lists, judgements, word lists, corpora."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caption_samples import CONCEPTUAL, JUDGEMENTS, TOKENS, WORD_COUNTS, format_of
from sightline.data import image_list, text_lists
from sightline.data.records import CaptionedPhoto, CaptionSet, Sentence
from sightline.errors import ByteStringError, DataError, DuplicateRecordError, MissingRecordError, TruncatedError

READERS: dict[str, Callable[[Path], Any]] = {
    "flickr-token": text_lists.read_flickr,
    "image-list": image_list.read_names,
    "flickr8k-judgements": text_lists.read_judgements,
    "word-counts": text_lists.read_counts,
    "corpus": text_lists.read_sentences,
    "conceptual-captions": text_lists.read_conceptual,
    "class-names": text_lists.read_class_names,
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sample.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_flickr_captions_are_gathered_by_photo(tmp_path: Path) -> None:
    captions = text_lists.read_flickr(written(tmp_path, TOKENS))
    assert [(p.id, p.file, len(p.sentences)) for p in captions] == [("1.jpg", "1.jpg", 2), ("2.jpg", "2.jpg", 1)]
    assert captions["1.jpg"].sentences[1] == Sentence("A girl .", id="1.jpg#1")


def test_a_name_that_is_no_pictures_is_noted(tmp_path: Path) -> None:
    report = text_lists.FLICKR.inspect(written(tmp_path, TOKENS + "3.jpg.1#0\tA cat .\n"))
    assert report.notes == ("1 name is not that of a picture, such as 3.jpg.1",)
    assert report.counts == {"photos": 3, "captions": 4}


def test_judgements_are_read_with_their_three_scores(tmp_path: Path) -> None:
    found = text_lists.read_judgements(written(tmp_path, JUDGEMENTS))
    assert found[0] == text_lists.Judgement("1.jpg", "2.jpg#2", (1, 1, 2))
    assert len(found) == 2


def test_word_counts_keep_the_order_of_ids(tmp_path: Path) -> None:
    counts = text_lists.read_counts(written(tmp_path, WORD_COUNTS))
    assert list(counts.items()) == [("<S>", 0), ("</S>", 0), ("a", 900), ("dog", 12), ("man", 12)]


def test_word_lists_in_an_unusual_order_are_noted_but_read(tmp_path: Path) -> None:
    path = written(tmp_path, "dog 12\na 900\n")
    assert list(text_lists.read_counts(path)) == ["dog", "a"]
    report = text_lists.WORD_COUNTS.inspect(path)
    assert report.notes == ("<S> and </S> are not the first two words", "the words are not sorted by count")
    assert report.problem_count == 0


def test_a_corpus_is_its_lines_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "c.txt.gz"
    path.write_bytes(gzip.compress("\ufeffTwo dogs .\r\nUn café noir\u2028ici\n a b".encode()))
    assert text_lists.read_sentences(path) == ["Two dogs .", "Un café noir\u2028ici", " a b"]
    assert text_lists.CORPUS.inspect(path).counts == {"sentences": 3, "different sentences": 3, "words": 9}


def test_conceptual_captions_are_numbered_by_line(tmp_path: Path) -> None:
    captions = text_lists.read_conceptual(written(tmp_path, CONCEPTUAL))
    assert captions["2"] == CaptionedPhoto("2", (Sentence("sierra looked stunning"),), "https://b.org/a")


def test_class_names_count_from_zero(tmp_path: Path) -> None:
    assert text_lists.read_class_names(written(tmp_path, "railing\nblouse\n")) == ["railing", "blouse"]


BROKEN = [
    ("flickr-token", TOKENS + "no tab here\n", DataError, "line 4: not `photo.jpg#0<TAB>caption`"),
    ("flickr-token", TOKENS + "1.jpg\tno number\n", DataError, "line 4: not"),
    ("flickr-token", TOKENS + "1.jpg#1\tagain\n", DuplicateRecordError, r"line 4: 1\.jpg#1 appears twice"),
    ("flickr-token", TOKENS + "4.jpg#0\tb'A dog .'\n", ByteStringError, "line 4: .*printed bytes"),
    ("flickr-token", TOKENS + "\n4.jpg#0\tA dog .\n", DataError, "line 4: the line is empty"),
    ("image-list", "1.jpg\n2.jpg\nthree\n", DataError, "line 3: 'three' is not the name of a picture"),
    ("image-list", "1.jpg\n2.jpg\n3\n", DataError, "line 3: '3' is not the name of a picture"),
    ("image-list", "1\n2\n3.jpg\n", DataError, r"line 3: '3\.jpg' is not an id of digits"),
    ("image-list", "1\n2\n1\n", DuplicateRecordError, "line 3: 1 appears twice"),
    ("image-list", "1.jpg\n2.jpg\n1.jpg\n", DuplicateRecordError, r"line 3: 1\.jpg appears twice"),
    ("flickr8k-judgements", JUDGEMENTS + "1.jpg\t2.jpg#2\t1\t1\n", DataError, "line 3: not `photo<TAB>caption id"),
    ("flickr8k-judgements", JUDGEMENTS + "1.jpg\t9.jpg#2\t1\t5\t1\n", DataError, "line 3: the scores 1, 5, 1"),
    (
        "flickr8k-judgements",
        JUDGEMENTS + "1.jpg\t2.jpg#2\t2\t2\t2\n",
        DuplicateRecordError,
        r"line 3: 2\.jpg#2 for 1\.jpg appears twice",
    ),
    ("word-counts", WORD_COUNTS + "cat\n", DataError, "line 6: 'cat' is not a word, a space and a count"),
    ("word-counts", WORD_COUNTS + "cat -4\n", DataError, "line 6"),
    ("word-counts", WORD_COUNTS + "cat " + "9" * 5000 + "\n", DataError, "line 6"),
    ("word-counts", WORD_COUNTS + "a 3\n", DuplicateRecordError, "line 6: a appears twice"),
    ("word-counts", WORD_COUNTS + "b'cat' 3\n", ByteStringError, "line 6"),
    ("corpus", "Two dogs .\n  \nA cat .\n", DataError, "line 2: the line is empty"),
    ("corpus", "Two dogs .\nb'A cat .'\n", ByteStringError, "line 2"),
    ("conceptual-captions", CONCEPTUAL + "no address\n", DataError, "line 3: not `caption<TAB>https"),
    ("conceptual-captions", CONCEPTUAL + 'b"x y"\thttps://b.org\n', ByteStringError, "line 3"),
    ("class-names", "dog\nman\ndog\n", DuplicateRecordError, "line 3: dog appears twice"),
]


@pytest.mark.parametrize(("module", "text", "error", "message"), BROKEN)
def test_a_broken_line_is_refused_with_its_number_and_inspected_without_raising(
    module: str, text: str, error: type[DataError], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(error, match=message) as caught:
        READERS[module](path)
    assert str(path) in str(caught.value)
    assert format_of(module).inspect(path).problems == (str(caught.value),)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("flickr-token", TOKENS),
        ("image-list", "1.jpg\n2.jpg\n"),
        ("flickr8k-judgements", JUDGEMENTS),
        ("word-counts", WORD_COUNTS),
        ("corpus", "Two dogs .\nA cat .\n"),
        ("conceptual-captions", CONCEPTUAL),
        ("class-names", "dog\nman\n"),
    ],
)
def test_a_cut_gzip_stream_is_truncated(module: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(gzip.compress(text.encode())[:-5])
    with pytest.raises(TruncatedError, match=r"cut\.txt\.gz"):
        READERS[module](path)
    assert format_of(module).inspect(path).problem_count > 0


@pytest.mark.parametrize("module", READERS)
def test_text_in_another_encoding_is_told(module: str, tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("Un café\n".encode("latin1"))
    with pytest.raises(DataError, match="not UTF-8 text"):
        READERS[module](path)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("COCO_val2014_000000391895.jpg", "391895"),
        ("train2014/COCO_train2014_000000000009.jpg", "9"),
        ("000000000139.jpg", "139"),
        ("1000268201_693b08cb0e.jpg", "1000268201"),
        ("36979.jpg", "36979"),
        ("holiday_2019.png", "holiday_2019"),
        ("0.jpg", "0"),
    ],
)
def test_names_of_coco_and_flickr_photos_tell_their_number(name: str, number: str) -> None:
    assert image_list.photo_number(name) == number


def lists(tmp_path: Path, **names: str) -> dict[str, Path]:
    found = {}
    for split, text in names.items():
        found[split] = tmp_path / f"{split}.txt"
        found[split].write_text(text.replace(" ", "\n") + "\n")
    return found


CAPTIONS = CaptionSet(
    (CaptionedPhoto("1", (), "train2014/a.jpg"), CaptionedPhoto("b.jpg"), CaptionedPhoto("3", (), "c.jpg")), "all.json"
)


def test_lists_of_names_give_photos_their_split(tmp_path: Path) -> None:
    found = image_list.with_splits(CAPTIONS, lists(tmp_path, train="a.jpg", test="b.jpg"))
    assert [photo.split for photo in found] == ["train", "test", None]
    assert found.split("test").photos == (CaptionedPhoto("b.jpg", split="test"),)


def test_lists_of_ids_give_photos_their_split_by_file_or_id(tmp_path: Path) -> None:
    captions = CaptionSet(
        (
            CaptionedPhoto("0", (), "images/36979.jpg"),
            CaptionedPhoto("65567.jpg"),
            CaptionedPhoto("391895", (), "a.jpg"),
        )
    )
    found = image_list.with_splits(captions, lists(tmp_path, train="36979 391895", val="65567"))
    assert [photo.split for photo in found] == ["train", "val", "train"]
    with pytest.raises(MissingRecordError, match="such as 7 of test"):
        image_list.with_splits(captions, lists(tmp_path, test="7"))


def test_a_photo_in_two_lists_or_in_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DuplicateRecordError, match=r"a\.jpg is in train and in test"):
        image_list.with_splits(CAPTIONS, lists(tmp_path, train="a.jpg b.jpg", test="a.jpg"))
    with pytest.raises(MissingRecordError, match=r"all\.json: 2 photos of the lists .* such as x\.jpg of val"):
        image_list.with_splits(CAPTIONS, lists(tmp_path, val="a.jpg x.jpg y.jpg"))


def photos(*names: str) -> list[CaptionedPhoto]:
    """`id` or `id=file` each."""
    return [CaptionedPhoto(id, (), file or None) for id, _, file in (name.partition("=") for name in names)]


@pytest.mark.parametrize(
    ("one", "others", "matched"),
    [
        ("examples/cat.jpg", ["dog.jpg", "cat.jpg"], "cat.jpg"),
        ("cat.jpg", ["a/cat.jpg", "a/dog.jpg"], "a/cat.jpg"),
        ("cat.jpg", ["a/cat.jpg", "b/cat.jpg"], None),  # which of the two is not said
        ("a/cat.jpg", ["a/cat.jpg", "b/cat.jpg"], "a/cat.jpg"),
        ("./a/cat.jpg", ["a/cat.jpg", "b/cat.jpg"], "a/cat.jpg"),
        ("cat.png", ["cat.jpg"], "cat.jpg"),
        ("000000030034.jpg", ["30034", "34"], "30034"),
        ("30034", ["val2014/COCO_val2014_000000030034.jpg"], "val2014/COCO_val2014_000000030034.jpg"),
        ("30034", ["9=COCO_val2014_000000030034.jpg"], "9"),
        ("007.jpg", ["7", "007"], "007"),
        ("7.jpg", ["7=1000092795.jpg", "8=1000268201.jpg"], None),  # a file called 7 is not the seventh photo
        ("7", ["7=1000092795.jpg", "8=7.jpg"], "7"),
        ("1000092795_0a1b2c3d4e.jpg", ["7=1000092795.jpg"], "7"),
    ],
)
def test_a_photo_is_found_under_another_name_where_one_fits(one: str, others: list[str], matched: str | None) -> None:
    found = image_list.match_photos(photos(one), photos(*others))
    assert found == ({} if matched is None else {one: matched})
