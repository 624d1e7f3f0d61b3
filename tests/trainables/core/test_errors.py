import pickle  # noqa: TID251 errors cross process boundaries as pickles, by the pool's hand

import pytest

from trainables.errors import ConfigError, CorruptCheckpoint, StateError, TrainableError


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("model.hidden", [0], "positive widths", "raise it"),
        StateError("state.x", "a lock", "return plain data"),
        CorruptCheckpoint("file", "cut off"),
    ],
)
def test_an_error_crosses_to_another_process_with_its_fields(error: TrainableError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 made one line above
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
