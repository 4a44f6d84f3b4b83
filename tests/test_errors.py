import pickle

import pytest

import sightline
from sightline import errors


def test_a_message_says_what_where_and_what_next():
    error = errors.DataError("caption 3 is empty", where="refs.json", fix="remove it")
    assert str(error) == "refs.json: caption 3 is empty. To fix: remove it."


def test_a_message_without_place_or_fix_is_still_a_sentence():
    assert str(errors.ConfigError("two models were named.")) == "two models were named."


@pytest.mark.parametrize("kind", [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)])
def test_every_error_is_a_sightline_error_and_crosses_process_borders(kind):
    assert issubclass(kind, sightline.SightlineError)
    error = pickle.loads(pickle.dumps(kind("what", where="file", fix="do")))
    assert type(error) is kind
    assert str(error) == "file: what. To fix: do."


def test_a_missing_extra_names_the_command_that_installs_it():
    assert "pip install 'sightline[train]'" in str(errors.MissingExtraError.of("h5py", "train", "reading hdf5"))


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (ImportError("_stat.so: failed to map segment from shared object"), True),
        (ImportError("No module named 'h5py'"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_that_ended_is_told_by_the_error(error, ended):
    assert errors.is_out_of_memory(error) == ended
