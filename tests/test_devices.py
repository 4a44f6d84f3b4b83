"""One parser of device names, for training and for the commands."""

import pytest
import torch

from sightline.devices import choose_device, one_thread
from sightline.errors import ConfigError


def test_names_become_devices():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "cpu,cuda"])
def test_a_name_that_no_device_has_is_told(name):
    with pytest.raises(ConfigError, match="no device is called"):
        choose_device(name)


@pytest.mark.parametrize("name", ["cuda:99", "cpu:7", "meta", "mps:3"])
def test_a_device_that_this_machine_lacks_is_told(name):
    with pytest.raises(ConfigError, match=f"this machine has no {name}"):
        choose_device(name)


def test_one_thread_is_for_what_is_in_it_and_where_it_is_wanted():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread(enabled=False):
            assert torch.get_num_threads() == 2
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
