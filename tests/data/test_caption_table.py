"""Photos with captions in tables, and plain folders of photos."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from caption_samples import write_photo
from sightline.data import caption_table, photo_folder
from sightline.data.format import Probe
from sightline.data.photo_finder import PhotoFinder
from sightline.data.records import CaptionSet
from sightline.errors import ByteStringError, CountError, DataError, MissingRecordError, TruncatedError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.PNG", "sub/c.webp", ".hidden.jpg", ".cache/d.jpg"):
        write_photo(tmp_path / name)
    return tmp_path


def table(folder: Path, text: str, name: str = "captions.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def texts(captions: CaptionSet) -> dict[str, list[str]]:
    return {photo.id: [sentence.text for sentence in photo.sentences] for photo in captions}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("captions.csv", "file,caption\na.jpg,A dog\nb.PNG,A cat\na.jpg,The dog\n"),
        ("captions.csv", "FileName, Caption\r\na.jpg,A dog\r\nb.PNG,A cat\r\na.jpg,The dog\r\n"),
        ("captions.tsv", "title\tfilepath\nA dog\ta.jpg\nA cat\tb.PNG\nThe dog\ta.jpg\n"),
        ("open_clip.csv", "filepath\ttitle\na.jpg\tA dog\nb.PNG\tA cat\na.jpg\tThe dog\n"),
        ("excel.csv", '\ufefffile;caption\r\na.jpg;A dog\r\nb.PNG;"A cat"\r\na.jpg;The dog\r\n'),
        ("kaggle.txt", "image,caption\na.jpg,A dog\nb.PNG,A cat\na.jpg,The dog\n"),
        ("more.csv", '\ufefflicence,path,text\nCC0,a.jpg,"A dog"\n,b.PNG,A cat\n,a.jpg,The dog'),
    ],
)
def test_tables_of_all_usual_headers_give_the_same_captions(name: str, text: str, photos: Path) -> None:
    path = table(photos, text, name)
    assert caption_table.CSV.matches(Probe(path))
    captions = caption_table.read(path)
    assert texts(captions) == {"a.jpg": ["A dog", "The dog"], "b.PNG": ["A cat"]}
    assert captions["a.jpg"].file == "a.jpg"


def test_quoted_captions_keep_commas_quotes_and_line_breaks(photos: Path) -> None:
    path = table(photos, 'file,caption\na.jpg,"One, two ""three""\r\nfour"\nb.PNG,x\n')
    assert texts(caption_table.read(path))["a.jpg"] == ['One, two "three"\r\nfour']


@pytest.mark.parametrize(
    "text",
    [
        '{"image": "a.jpg", "caption": "A dog"}\n{"image": "a.jpg", "caption": "The dog"}\n',
        '{"file_name": "a.jpg", "text": ["A dog", "The dog"], "width": 3}\n',
    ],
)
def test_lines_of_json_give_one_or_many_captions(text: str, photos: Path) -> None:
    path = table(photos, text, "metadata.jsonl")
    assert caption_table.JSONL.matches(Probe(path))
    assert texts(caption_table.read(path)) == {"a.jpg": ["A dog", "The dog"]}


BROKEN_CSV = [
    ("a.jpg,A dog\n", DataError, r"line 1: there is no file, .* or path among the columns a\.jpg, A dog"),
    ("", DataError, r"line 1: there is no file, .* among the columns \(none\)"),
    ("file,words\na.jpg,A dog\n", DataError, "there is no caption, title or text among the columns file, words"),
    ("file,caption\na.jpg,A dog\nz.jpg,A cat\n", MissingRecordError, r"line 3: there is no photo 'z\.jpg'"),
    ("file,caption\na.jpg,A dog, and a cat\n", CountError, "line 2: 3 columns, the header has 2"),
    ("file,caption\na.jpg\n", CountError, "line 2: 1 column, the header"),
    ("file,caption\na.jpg,b'A dog'\n", ByteStringError, "line 2: .*printed bytes"),
    ("file,caption\n,A dog\n", DataError, "line 2: the file is empty"),
    ("file;caption\na.jpg;A dog; and a cat\n", CountError, "line 2: 3 columns, the header has 2"),
    ("file,caption," + "x" * 200_000 + "\na.jpg,A dog\n", DataError, "line 1: not a valid table: field larger"),
    ('file,caption\na.jpg,"A dog\n', DataError, "not a valid table: unexpected end of data"),
    ("file,caption\n" + "long name " * 100 + ",A dog\n", MissingRecordError, "line 2: there is no photo"),
]


@pytest.mark.parametrize(("text", "error", "message"), BROKEN_CSV)
def test_broken_tables_are_refused_with_their_line(
    text: str, error: type[DataError], message: str, photos: Path
) -> None:
    path = table(photos, text)
    with pytest.raises(error, match=message) as caught:
        caption_table.read(path, photos_in=PhotoFinder(path.parent))
    assert str(path) in str(caught.value)
    if error is not MissingRecordError:
        assert str(caught.value) in caption_table.CSV.inspect(path).problems
    assert str(caught.value) in photo_folder.FORMAT.inspect(photos).problems


BROKEN_JSONL = [
    ('{"file": "a.jpg", "caption": "x"}\n{"file": "z.jpg", "caption": "x"}\n', MissingRecordError, r"line 2: .*z\.jpg"),
    ('{"file": "a.jpg", "words": "x"}\n', DataError, "line 1: there is no caption, title or text among file, words"),
    ('{"caption": "x"}\n', DataError, "line 1: there is no file"),
    ('{"file": "a.jpg", "caption": 3}\n', DataError, "line 1: 'caption' must be text, not the number 3"),
    ('{"file": 5, "caption": "x"}\n', DataError, "line 1: 'file' must be text"),
    ("[1]\n", DataError, "line 1: an object"),
    ("[" * 100_000 + "\n", DataError, "line 1: this JSON cannot be read"),
    ('{"file": "a.jpg", "caption": ' + "9" * 5000 + "}\n", DataError, "line 1: this JSON cannot be read: a number has"),
    ('{"file": "a.jpg" "caption": "x"}\n', DataError, "line 1: not valid JSON"),
    ('{"file": "a.jpg", "caption": "x"}\n{"file": "a.jpg", "cap', TruncatedError, "line 2: the JSON ends too early"),
    ('{"file": "a.jpg", "caption": "x"}\n\n', DataError, "line 2: the line is empty"),
]


@pytest.mark.parametrize(("text", "error", "message"), BROKEN_JSONL)
def test_broken_lines_of_json_are_refused_with_their_line(
    text: str, error: type[DataError], message: str, photos: Path
) -> None:
    path = table(photos, text, "captions.jsonl")
    with pytest.raises(error, match=message) as caught:
        caption_table.read(path, photos_in=PhotoFinder(path.parent))
    assert str(path) in str(caught.value)
    if error is not MissingRecordError:
        assert str(caught.value) in caption_table.JSONL.inspect(path).problems


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("name", ["captions.csv", "mine.csv"])
def test_a_utf16_table_is_claimed_and_said_to_be_one(name: str, encoding: str, photos: Path) -> None:
    path = photos / name
    path.write_bytes(("\ufeff" * (encoding == "utf-16-be") + "file\tcaption\na.jpg\tEin Café\n").encode(encoding))
    assert caption_table.CSV.matches(Probe(path))
    with pytest.raises(DataError, match=r"this is UTF-16 text\. To fix: save it as UTF-8"):
        caption_table.read(path)
    assert caption_table.CSV.inspect(path).problem_count == 1


def test_captions_of_photos_elsewhere_are_read_and_noted_unless_the_folder_is_theirs(photos: Path) -> None:
    path = table(photos, "file,caption\nfar/away.jpg,A dog\na.jpg,A cat\n")
    assert texts(caption_table.read(path)) == {"far/away.jpg": ["A dog"], "a.jpg": ["A cat"]}
    report = caption_table.CSV.inspect(path)
    assert (report.problems, report.notes) == ((), ("1 of the photos is not beside it",))
    assert photo_folder.FORMAT.inspect(photos).problem_count == 1
    (photos / ".sightline").mkdir()  # what `sightline caption --out` leaves
    assert photo_folder.FORMAT.inspect(photos).problem_count == 0


@pytest.mark.parametrize("broken", ['{"path": "b.jpg"}', "3", '{"path": "b.jpg", "caption": 3}'])
def test_a_list_of_captions_is_read_and_its_broken_entries_are_told(broken: str, tmp_path: Path) -> None:
    good = '{"path": "a.jpg", "caption": "A dog", "words": [{"word": "dog"}]}'
    path = table(tmp_path, f"[{good}, {broken}]", "said.json")
    assert caption_table.JSON.matches(Probe(path))
    report = caption_table.JSON.inspect(path)
    assert (report.counts["captions"], report.problem_count) == (1, 1)
    with pytest.raises(DataError, match=r"said\.json, photos\[1\]"):
        caption_table.read(path)
    assert texts(caption_table.read(table(tmp_path, f"[{good}]", "said.json"))) == {"a.jpg": ["A dog"]}


def test_a_folder_gives_every_photo_with_its_captions(photos: Path) -> None:
    table(photos, "file,caption\n./sub/c.webp,A boat\na.jpg,A dog\n")
    captions = photo_folder.read(photos)
    assert texts(captions) == {"./sub/c.webp": ["A boat"], "a.jpg": ["A dog"], "b.PNG": []}
    report = photo_folder.FORMAT.inspect(photos)
    assert report.counts == {"photos": 3, "captions": 2, "jpg": 1, "png": 1, "webp": 1}
    assert report.notes == ("1 photo has no caption",)


def test_a_folder_without_captions_is_counted_by_kind(photos: Path) -> None:
    assert photo_folder.FORMAT.matches(Probe(photos))
    assert texts(photo_folder.read(photos)) == {"a.jpg": [], "b.PNG": [], "sub/c.webp": []}
    report = photo_folder.FORMAT.inspect(photos)
    assert report.counts == {"photos": 3, "captions": 0, "jpg": 1, "png": 1, "webp": 1}
    assert report.notes == ("no table of captions is in it",)


@pytest.mark.parametrize("suffix", "jpg jpeg jpe jfif png webp avif gif bmp tif tiff heic heif JPG".split())
def test_every_kind_of_picture_makes_a_photo_folder(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"x.{suffix}").touch()
    assert photo_folder.FORMAT.matches(Probe(tmp_path))
    assert photo_folder.photo_files(tmp_path) == [f"x.{suffix}"]


HEADS = {
    "bigtiff": b"II+\0\x08\0\0\0",
    "heic": b"\0\0\0\x18ftypheic",
    "avif": b"\0\0\0\x20ftypavif",
    "mif1": b"\0\0\0\x20ftypmif1",
}


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "gif", "bmp", "tiff"])
def test_every_kind_of_picture_begins_like_one(kind: str, tmp_path: Path) -> None:
    Image.new("RGB", (3, 2)).save(tmp_path / "a.jpg", kind)
    assert photo_folder.FORMAT.inspect(tmp_path).problems == ()


@pytest.mark.parametrize("kind", HEADS)
def test_kinds_that_are_rarely_written_are_known_by_their_first_bytes(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.heic").write_bytes(HEADS[kind].ljust(100, b"\0"))
    assert photo_folder.FORMAT.inspect(tmp_path).problems == ()


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", TruncatedError, "the picture is empty"),
        (b"Not a picture at all", DataError, "not a picture"),
        (b"\0\0\0\x18ftypmp42", DataError, "not a picture"),
        (b"RIFF\0\0\0\0WAVE", DataError, "not a picture"),
        (b"\xff\xd8", DataError, "not a picture"),
    ],
)
def test_a_file_that_is_only_called_a_picture_is_reported(
    content: bytes, error: type[DataError], message: str, photos: Path
) -> None:
    path = photos / "sub" / "a b.jpg"
    path.write_bytes(content)
    with pytest.raises(error, match=rf"a b\.jpg: {message}") as caught:
        photo_folder.read(photos)
    report = photo_folder.FORMAT.inspect(photos)
    assert report.problems == (str(caught.value),)
    assert report.counts["photos"] == 4


def test_a_metadata_table_about_something_else_makes_no_photo_folder(tmp_path: Path) -> None:
    table(tmp_path, "station,rain\n1,2\n", "metadata.csv")
    assert not photo_folder.FORMAT.matches(Probe(tmp_path))
    table(tmp_path, "file_name,text\nx.jpg,A dog\n", "metadata.csv")
    assert photo_folder.FORMAT.matches(Probe(tmp_path))


def test_a_folder_of_other_files_with_a_picture_among_them_is_not_a_photo_folder(tmp_path: Path) -> None:
    for name in ("1.npz", "2.npz", "plot.png"):
        (tmp_path / name).touch()
    assert not photo_folder.FORMAT.matches(Probe(tmp_path))


@pytest.mark.parametrize("name", caption_table.IMAGE_FOLDER)
def test_the_table_of_an_image_folder_is_read_as_it_was_written(name: str, photos: Path) -> None:
    """https://huggingface.co/docs/datasets/image_dataset: `file_name` and `text`, in a table beside the photos."""
    source = table(photos, "file,caption\na.jpg,A dog\nsub/c.webp,A cat\na.jpg,The dog\n")
    captions = caption_table.read(source)
    path = photos / name
    write = caption_table.write_csv if path.suffix == ".csv" else caption_table.write_jsonl
    assert write(path, captions) == 2
    first = path.read_text().splitlines()[0]
    assert (first.split(",") if path.suffix == ".csv" else list(json.loads(first))) == ["file_name", "text"]
    source.unlink()
    expected = {"a.jpg": ["A dog", "The dog"], "sub/c.webp": ["A cat"]}
    assert texts(photo_folder.read(photos)) == {**expected, "b.PNG": []}


def test_the_names_of_an_image_folder_lead_from_it_wherever_captions_were_written(
    photos: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(photos.parent)
    named = table(elsewhere, f"path,caption\n{photos.name}/sub/c.webp,A cat\n{photos / 'a.jpg'},A dog\n")
    caption_table.write_jsonl(photos / "metadata.jsonl", caption_table.read(named))
    assert set(texts(caption_table.read(photos / "metadata.jsonl"))) == {"a.jpg", "sub/c.webp"}
    with pytest.raises(MissingRecordError, match="copy the photos there"):
        caption_table.write_jsonl(elsewhere / "metadata.jsonl", caption_table.read(named))
    assert not (elsewhere / "metadata.jsonl").exists()


def test_photos_that_are_links_or_in_linked_folders_are_in_an_image_folder(
    photos: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_photo(elsewhere / "r.jpg")
    (photos / "link.jpg").symlink_to(elsewhere / "r.jpg")
    (photos / "linked").symlink_to(elsewhere)
    monkeypatch.chdir(photos.parent)
    named = table(elsewhere, f"path,caption\n{photos.name}/link.jpg,A rocket\n{photos.name}/linked/r.jpg,A rocket\n")
    caption_table.write_jsonl(photos / "metadata.jsonl", caption_table.read(named))
    assert set(texts(caption_table.read(photos / "metadata.jsonl"))) == {"link.jpg", "linked/r.jpg"}


def test_a_table_beside_the_folder_of_its_photos_names_each_once(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        write_photo(tmp_path / "photos" / name)
    table(tmp_path, "file,caption\na.jpg,A dog\nphotos/b.jpg,A cat\n")
    report = photo_folder.FORMAT.inspect(tmp_path)
    assert (report.counts, report.notes, report.problems) == ({"photos": 2, "captions": 2, "jpg": 2}, (), ())
    assert [photo.file for photo in photo_folder.read(tmp_path)] == ["photos/a.jpg", "photos/b.jpg"]


@pytest.mark.parametrize("drawn", [True, False])
def test_what_caption_wrote_names_each_photo_once_beside_its_drawing_and_in_the_folder_itself(
    drawn: bool, tmp_path: Path
) -> None:
    write_photo(tmp_path / ("a.captioned.jpg" if drawn else "a.jpg"))
    table(tmp_path, f"path,caption\n{tmp_path.name}/a.jpg,A dog\n")
    (tmp_path / ".sightline").mkdir()
    report = photo_folder.FORMAT.inspect(tmp_path)
    assert (report.counts["photos"], report.notes, report.problems) == (1, (), ())


def test_a_photo_whose_name_is_no_text_is_a_problem(photos: Path) -> None:
    write_photo(photos / "caf\udce9.jpg")
    report = photo_folder.FORMAT.inspect(photos)
    assert report.counts["photos"] == 3
    assert "is not UTF-8 text. To fix: rename it" in report.problems[0]


@pytest.mark.parametrize("name", ["captions.csv", "mine.csv"])
def test_a_table_that_is_not_utf8_is_claimed_and_says_how_to_save_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes("file;caption\na.jpg;Ein Café mit vielen Gästen\n".encode("latin-1"))
    assert caption_table.CSV.matches(Probe(path))
    with pytest.raises(DataError, match=r"not UTF-8 text\. To fix: save it as UTF-8 \(in a spreadsheet"):
        caption_table.read(path)
