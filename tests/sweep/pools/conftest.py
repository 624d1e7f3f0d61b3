from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers; the second is watched by a nanny, as `dask worker` starts them by itself."""
    with running(tmp_path_factory.mktemp("cluster"), 1) as opened:
        opened.add("b", "--nanny")
        yield opened
