"""Which errors are those of a device, and not of what it computes."""

import pytest

from trainables.core.devices import device_error, device_name
from trainables.errors import DeviceError, DeviceLost, DeviceOutOfMemory


class JaxRuntimeError(RuntimeError):
    """Named as the error of JAX is."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (JaxRuntimeError("INTERNAL: CUDA_ERROR_LAUNCH_FAILED"), DeviceLost),
        (JaxRuntimeError("UNAVAILABLE: no such device"), DeviceLost),
        (JaxRuntimeError("DATA_LOSS: uncorrectable"), DeviceLost),
        (RuntimeError("Unable to initialize backend 'cuda': none"), DeviceLost),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), DeviceOutOfMemory),
        (JaxRuntimeError("INTERNAL: failed: CUDA_ERROR_OUT_OF_MEMORY"), DeviceOutOfMemory),
        (JaxRuntimeError("INTERNAL: CpuCallback error: ValueError: odd"), type(None)),
        (JaxRuntimeError("INVALID_ARGUMENT: shapes differ"), type(None)),
        (RuntimeError("INTERNAL: somebody else's"), type(None)),
        (ValueError("RESOURCE_EXHAUSTED: Out of memory"), type(None)),
    ],
)
def test_an_error_is_of_the_device_by_its_status(error: Exception, kind: type) -> None:
    assert type(device_error(error)) is kind


def test_the_first_line_of_an_error_of_the_device_is_told_whatever_was_raised_of_it() -> None:
    def fail() -> None:
        try:
            raise JaxRuntimeError("INTERNAL: it is\tgone\nStack trace: …")
        except RuntimeError as error:
            raise ValueError("no checkpoint can be made") from error

    with pytest.raises(ValueError, match="no checkpoint") as raised:
        fail()
    found = device_error(raised.value)
    assert isinstance(found, DeviceError)
    assert str(found) == "INTERNAL: it is\\tgone"
    assert device_error(found) is found


def test_what_jax_raises_is_named_as_expected() -> None:
    jax = pytest.importorskip("jax")
    found = device_error(jax.errors.JaxRuntimeError("INTERNAL: it is gone"))
    assert isinstance(found, DeviceLost)
    assert device_name()
