import pytest

from tests.support.events import Story, tell_everything


@pytest.fixture
def told(story: Story) -> Story:
    """The story of the test's own module, told to its end."""
    tell_everything(story)
    return story
