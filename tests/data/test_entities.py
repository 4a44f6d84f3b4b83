"""Flickr30k Entities: phrases, chains and boxes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caption_samples import MARKED, XML, write_tar
from sightline.data import entities
from sightline.data.entities import NOT_VISUAL, Phrase, parse_annotation, parse_sentence
from sightline.data.format import Probe
from sightline.errors import BoxError, DataError, MissingRecordError, TruncatedError

NAME = ("Annotations/36979.xml", "Sentences/36979.txt")
WORDS = st.text("abcdefgh.,'", min_size=1, max_size=5)


def write(folder: Path, xml: str | None = XML, marked: str | None = MARKED) -> Path:
    files = {name: text for name, text in zip(NAME, (xml, marked), strict=True) if text is not None}
    return write_tar(folder / "entities.tar.gz", files)


def write_folder(folder: Path) -> Path:
    for name, text in zip(NAME, (XML, MARKED), strict=True):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    (folder / "Sentences" / "._36979.txt").write_bytes(b"\0\xff")
    return folder


def test_phrases_boxes_and_flags_are_read(tmp_path: Path) -> None:
    (photo,) = entities.read_photos(write(tmp_path)).values()
    assert (photo.id, photo.size) == ("36979", (100, 50))
    one, two = photo.sentences
    assert one.tokens == ("Two", "men", "in", "a", "park", ".")
    assert one.phrases == (
        Phrase("1", ("Two", "men"), 0),
        Phrase("3", ("a", "park"), 3),
    )
    assert [phrase.chain for phrase in two.phrases] == [NOT_VISUAL, "2", "4"]
    assert photo.boxes == {"1": ((0, 1, 99, 49), (4, 4, 8, 8)), "2": ((0, 1, 99, 49),)}
    assert photo.box_count == 2


def test_a_folder_gives_what_the_archive_gives(tmp_path: Path) -> None:
    archive = entities.read_photos(write(tmp_path))
    folder = tmp_path / "unpacked"
    folder.mkdir()
    assert entities.read_photos(write_folder(folder)) == archive
    assert entities.FORMAT.inspect(folder).counts["phrases"] == 5


def test_a_zip_archive_gives_what_the_tar_archive_gives(tmp_path: Path) -> None:
    tar = entities.read_photos(write(tmp_path))
    path = tmp_path / "annotations.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in zip(NAME, (XML, MARKED), strict=True):
            archive.writestr(name, text)
        archive.writestr("__MACOSX/Sentences/._36979.txt", b"\0\xff")
    assert entities.FORMAT.matches(Probe(path))
    assert entities.read_photos(path) == tar
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TruncatedError, match=r"annotations\.zip"):
        entities.read_photos(path)


def test_captions_are_the_tokens_without_marks(tmp_path: Path) -> None:
    (photo,) = entities.FORMAT.captions(write(tmp_path))
    assert [sentence.text for sentence in photo.sentences] == ["Two men in a park .", "It shows a man with style ."]
    assert (photo.file, photo.size) == ("36979.jpg", (100, 50))


def test_plain_captions_ask_for_no_lemma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(entities, "lemma")  # which loads WordNet, and is looked up for every phrase
    assert len(list(entities.FORMAT.captions(write(tmp_path)).sentences())) == 2


@given(
    st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=3), st.one_of(st.none(), st.integers(0, 999))), max_size=8)
)
def test_marking_phrases_and_parsing_them_is_the_identity(parts: list[tuple[list[str], int | None]]) -> None:
    line = " ".join(
        " ".join(words) if chain is None else f"[/EN#{chain}/people {' '.join(words)}]" for words, chain in parts
    )
    sentence = parse_sentence(line, "here")
    assert list(sentence.tokens) == [word for words, _ in parts for word in words]
    assert [(p.chain, list(p.words)) for p in sentence.phrases] == [(str(c), w) for w, c in parts if c is not None]
    for phrase in sentence.phrases:
        assert sentence.tokens[phrase.first : phrase.first + len(phrase.words)] == phrase.words


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[/EN#1/people A man", "'\\[/EN#1/people' is not closed"),
        ("[/EN#1/people A [/EN#2/other hat] .", "opens before the phrase before it closes"),
        ("A man] .", "'man\\]' does not fit"),
        ("[/EN#1/people ] .", "'\\]' does not fit"),
        ("[/EN#/people A man] .", "is not `\\[/EN#<chain>/<type>`"),
        ("[/EN#1 A man] .", "is not `\\[/EN#<chain>/<type>`"),
        ("[A man] .", "'\\[A' is not"),
        ("[/EN#1/people A m[an] .", "does not fit"),
    ],
)
def test_brackets_that_do_not_pair_are_refused_with_their_line(line: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, marked=f"A dog .\n{line}\n")
    with pytest.raises(DataError, match=rf"36979\.txt, line 2: .*{message}") as caught:
        entities.read_photos(path)
    assert entities.FORMAT.inspect(path).problems == (str(caught.value),)


@pytest.mark.parametrize(
    ("marked", "error", "message"),
    [
        ("", TruncatedError, "36979.txt: the file is empty"),
        ("\n", TruncatedError, "36979.txt: the file is empty"),
        ("A dog .\n" * 5 + "\n", DataError, "36979.txt, line 6: the line is empty"),
        ("A dog .\n\nA cat .\n", DataError, "36979.txt, line 2: the line is empty"),
    ],
)
def test_no_caption_is_made_of_nothing(marked: str, error: type[DataError], message: str, tmp_path: Path) -> None:
    path = write(tmp_path, marked=marked)
    with pytest.raises(error, match=message) as caught:
        entities.read_photos(path)
    assert entities.FORMAT.inspect(path).problems == (str(caught.value),)


@pytest.mark.parametrize("count", [4, 5, 6])
def test_photos_without_five_captions_are_counted_in_a_note(count: int, tmp_path: Path) -> None:
    report = entities.FORMAT.inspect(write(tmp_path, marked="[/EN#1/people A man] .\n" * count))
    assert report.counts["captions"] == count
    assert report.notes == (() if count == 5 else ("1 photo does not have 5 captions",))


def test_a_packed_member_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    large = "A dog .\n" * (1 << 20)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(NAME[0], XML)
        archive.writestr(NAME[1], large)
    assert path.stat().st_size < 50_000
    folder = tmp_path / "unpacked"
    folder.mkdir()
    (write_folder(folder) / NAME[1]).write_text(large)
    for source in (path, write(tmp_path, marked=large), folder):
        with pytest.raises(DataError, match=r"36979\.txt is larger than 4 MiB"):
            entities.read_photos(source)
        assert entities.FORMAT.inspect(source).problem_count == 1


def test_an_archive_of_nothing_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, xml=None, marked=None)
    with pytest.raises(TruncatedError, match="it holds no Sentences"):
        entities.read_photos(path)
    assert entities.FORMAT.inspect(path).problem_count == 1


def test_an_unusual_packing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "annotations.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr(NAME[1], MARKED)
    with pytest.raises(DataError, match=r"36979\.txt is not packed with deflate"):
        entities.read_photos(path)


@given(damage=st.binary(min_size=1, max_size=3), place=st.floats(0, 1))
def test_no_damage_of_a_zip_archive_raises_anything_but_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, damage: bytes, place: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in zip(NAME, (XML, MARKED), strict=True):
            archive.writestr(name, text)
    raw = bytearray(path.read_bytes())
    at = int(place * (len(raw) - len(damage)))
    raw[at : at + len(damage)] = damage
    path.write_bytes(raw)
    report = entities.FORMAT.inspect(path)
    assert report.problem_count or entities.read_photos(path)


def test_an_encrypted_archive_is_told(tmp_path: Path) -> None:
    path = tmp_path / "annotations.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(NAME[1], MARKED)
    raw = bytearray(path.read_bytes())
    raw[6] |= 1  # the flag of the member's own header
    raw[raw.index(b"PK\1\2") + 8] |= 1  # and of its entry in the directory
    path.write_bytes(raw)
    with pytest.raises(DataError, match="encrypted"):
        entities.read_photos(path)


def test_a_tgz_is_claimed_and_read_like_a_tar_gz(tmp_path: Path) -> None:
    archive = write(tmp_path)
    path = tmp_path / "entities.tgz"
    path.write_bytes(archive.read_bytes())
    assert entities.FORMAT.matches(Probe(path))
    assert entities.read_photos(path) == entities.read_photos(archive)


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        (
            "<xmax>100</xmax>",
            "<xmax>101</xmax>",
            BoxError,
            "object 0: the box 1 2 101 50 .* not inside the 100×50 photo",
        ),
        ("<xmin>1</xmin>", "<xmin>0</xmin>", BoxError, "counted from 1"),
        ("<xmin>5</xmin>", "<xmin>50</xmin>", BoxError, "object 1"),
        ("<xmin>5</xmin>", "", DataError, "object 1: `xmin` is missing"),
        ("<ymin>5</ymin>", "<ymin>5.5</ymin>", DataError, "`ymin` is '5.5', a whole number"),
        ("<width>100</width>", "", DataError, "`width` is missing"),
        ("<size><width>100</width><height>50</height><depth>3</depth></size>", "", DataError, "`size` is missing"),
        ("<name>3</name>", "", DataError, "object 2: an object has no chain"),
        ("<nobndbox>1</nobndbox>", "<nobndbox>0</nobndbox>", DataError, "object 3: .* neither"),
        ("<depth>", "<deep>", DataError, "not valid XML"),
        ("</annotation>", "", TruncatedError, "not valid XML"),
    ],
)
def test_broken_annotations_are_refused_with_their_object(
    old: str, new: str, error: type[DataError], message: str, tmp_path: Path
) -> None:
    assert old in XML
    path = write(tmp_path, xml=XML.replace(old, new))
    with pytest.raises(error, match=rf"Annotations/36979\.xml.*{message}") as caught:
        entities.read_photos(path)
    assert str(caught.value) in entities.FORMAT.inspect(path).problems


def test_missing_halves_and_unknown_chains_are_told(tmp_path: Path) -> None:
    with pytest.raises(MissingRecordError, match=r"photo 36979 has Sentences/36979\.txt but no Annotations"):
        entities.read_photos(write(tmp_path, xml=None))
    with pytest.raises(MissingRecordError, match=r"photo 36979 has Annotations/36979\.xml but no Sentences"):
        entities.read_photos(write(tmp_path, marked=None))
    path = write(tmp_path, marked="[/EN#77/people A man] .\n")
    with pytest.raises(MissingRecordError, match="photo 36979 has phrases of chain 77"):
        entities.read_photos(path)
    assert entities.FORMAT.inspect(path).counts["photos"] == 1


def test_a_cut_archive_is_truncated(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(TruncatedError, match=r"entities\.tar\.gz"):
        entities.read_photos(path)
    assert entities.FORMAT.inspect(path).problem_count == 1


def test_text_in_another_encoding_is_told(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    (folder / NAME[1]).write_bytes("Ein Café .\n".encode("latin1"))
    with pytest.raises(DataError, match=r"Sentences/36979\.txt: not UTF-8"):
        entities.read_photos(folder)


def test_boxes_count_pixels_from_zero() -> None:
    xml = XML.replace("<xmin>5</xmin>", "<xmin>1</xmin>")
    assert parse_annotation(xml, "here").boxes["1"][1] == (0, 4, 8, 8)
