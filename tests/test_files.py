import gzip
import json
import multiprocessing
import os
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline import files
from sightline.errors import DataError, NameTooLongError, TruncatedError
from sightline.files import hold_interrupts

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=json_values)
def test_json_reads_back_as_written(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("json") / "value.json"
    try:
        files.write_json(path, value)
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form, and nothing may be left behind
        assert not path.exists()
        return
    assert files.read_json(path) == value


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    files.write_text(path, "old")

    def fail_half_way():
        with files.atomic_write(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_may_have_a_name_as_long_as_names_can_be_and_no_longer(tmp_path):
    files.write_text(tmp_path / ("x" * 255), "whole")
    assert (tmp_path / ("x" * 255)).read_text() == "whole"
    with pytest.raises(NameTooLongError, match="use a shorter name"):
        files.write_text(tmp_path / ("x" * 256), "whole")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_written_file_has_ordinary_permissions(tmp_path):
    files.write_text(tmp_path / "file", "x")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_cannot_be_written_is_told_by_its_own_name(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=r"out\.json: cannot write: .*choose a folder"):
        files.write_json(tmp_path / "file" / "out.json", 1)


def test_text_is_gzipped_where_the_name_says_so_and_read_by_what_it_is(tmp_path):
    files.write_text(tmp_path / "x.json.gz", "[1]")
    assert gzip.decompress((tmp_path / "x.json.gz").read_bytes()) == b"[1]"
    (tmp_path / "x.json.gz").rename(tmp_path / "renamed.json")
    assert files.read_json(tmp_path / "renamed.json") == [1]


def test_nan_is_not_json(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "x.json", float("nan"))


def test_fingerprints_depend_on_where_parts_end():
    assert files.fingerprint("ab", "c") != files.fingerprint("a", "bc")
    assert files.fingerprint(b"ab") == files.fingerprint("ab")


def _try_to_lock(path, queue):
    try:
        with files.lock(path):
            queue.put("locked")
    except DataError as error:
        queue.put(str(error))


def test_a_lock_has_one_holder_and_ends_with_it(tmp_path):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()

    def ask():
        other = context.Process(target=_try_to_lock, args=(tmp_path / "lock", answers))
        other.start()
        other.join()
        return answers.get(timeout=10)

    with files.lock(tmp_path / "lock"):
        assert "another process is writing" in ask()
    assert ask() == "locked"


def test_gzip_is_read_as_if_it_were_plain(tmp_path):
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(json.dumps({"a": 1}).encode()))
    assert files.read_json(tmp_path / "x.json.gz") == {"a": 1}


@pytest.mark.parametrize(
    ("name", "content", "kind", "words"),
    [
        ("cut.json", b'{"a": [1, 2', TruncatedError, "ends too early"),
        ("open.json", b'{"a": "no end', TruncatedError, "ends too early"),
        ("more.json", b'{"1": "a dog"}\nx\n', DataError, "not valid JSON: Extra data at line 2, column 1"),
        ("bad.json", b'{"a": 1,\n "b": oops}', DataError, "line 2, column 7"),
        ("deep.json", b"[" * 200_000 + b"]" * 200_000, DataError, "cannot be read: it is nested too deep"),
        (
            "long.json",
            b"[1,\n 2" + b"9" * 5000 + b"]",
            DataError,
            "a number has more than 4,300 digits at line 2, column 2",
        ),
        ("latin.json", b'{"a": "caf\xe9"}', DataError, "not UTF-8"),
        ("cut.json.gz", gzip.compress(b"[" + b"1," * 5000 + b"1]", mtime=0)[:-20], TruncatedError, "gzip stream"),
        ("fake.json.gz", b"{}", DataError, "not a gzip file"),
    ],
)
def test_broken_files_get_a_sentence_that_names_them(tmp_path, name, content, kind, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(kind, match=words) as caught:
        files.read_json(tmp_path / name)
    assert name in str(caught.value)


def test_a_missing_file_is_told_with_the_nearest_folder_that_exists(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path.name} exists"):
        files.read_json(tmp_path / "no" / "such.json")


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(DataError, match="this is a folder"):
        files.read_json(tmp_path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_told(tmp_path):
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0)
    with pytest.raises(DataError, match="permission"):
        files.read_json(path)


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path))
    assert files.cache_dir() == tmp_path
    monkeypatch.delenv("SIGHTLINE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert files.cache_dir() == tmp_path / "x" / "sightline"


@pytest.mark.parametrize("signals", [1, 2])
def test_an_interrupt_waits_until_what_is_held_is_done_and_a_second_one_acts_at_once(signals):
    done = []

    def hold() -> None:
        with hold_interrupts():
            for _ in range(signals):
                signal.raise_signal(signal.SIGINT)
            with hold_interrupts():
                done.append("inside")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            hold()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == (["inside"] if signals == 1 else [])


def test_outside_the_main_thread_nothing_is_held_and_nothing_fails():
    done = []

    def hold() -> None:
        with hold_interrupts():
            done.append(True)

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert done == [True]
