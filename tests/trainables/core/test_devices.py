"""The device on which JAX computes."""

import pytest

from trainables.core.devices import device_name


def test_the_device_of_jax_has_a_name() -> None:
    pytest.importorskip("jax")
    assert device_name()
