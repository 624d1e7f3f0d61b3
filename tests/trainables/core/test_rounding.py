"""What tells whether two processes round alike."""

import os
import subprocess
import sys

import pytest
import torch

from trainables.core import rounding

ASK = "from trainables.core.rounding import fingerprint; print(fingerprint(True))"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PLAIN = dict.fromkeys(("MKL_CBWR", "ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE"), "")


def asked(**variables: str) -> str:
    """The digest of a process with these variables."""
    given = {**os.environ, **PLAIN, **variables}
    own = {name: value for name, value in given.items() if value}
    ran = subprocess.run(
        [sys.executable, "-c", ASK], env=own, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


@pytest.mark.slow
def test_processes_that_round_alike_have_one_digest_whatever_their_threads() -> None:
    assert asked() == asked() == asked(**ONE_THREAD) == asked(OMP_NUM_THREADS="3")


@pytest.mark.slow
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="this processor has one way only"
)
def test_a_library_that_takes_other_routines_has_another_digest() -> None:
    assert asked(ATEN_CPU_CAPABILITY="default") != asked()


@pytest.mark.parametrize("in_torch", [False, True])
def test_the_digest_is_that_of_all_numbers_that_came_out(
    monkeypatch: pytest.MonkeyPatch, in_torch: bool
) -> None:
    rounding.fingerprint.cache_clear()
    before = rounding.fingerprint(in_torch)
    plain = rounding._numpy_results

    def nudged():  # type: ignore[no-untyped-def]
        *others, last = plain()
        last.view("u4")[-1] ^= 1  # the last bit of the last number
        yield from [*others, last]

    monkeypatch.setattr(rounding, "_numpy_results", nudged)
    rounding.fingerprint.cache_clear()
    assert not rounding.is_compatible(rounding.fingerprint(in_torch), before)
    monkeypatch.undo()
    rounding.fingerprint.cache_clear()
    assert rounding.fingerprint(in_torch) == before


def test_a_digest_without_torch_does_not_import_it() -> None:
    ask = (
        "import sys; from trainables.core.rounding import fingerprint; "
        "print(fingerprint(False), 'torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    digest, imported = ran.stdout.split()
    assert imported == "False"
    assert digest == rounding.fingerprint(False)
    whole = rounding.fingerprint(True)
    assert len(whole) == 2 * len(digest)
    assert rounding.is_compatible(digest, whole)
    assert rounding.is_compatible(whole, digest)
    assert not rounding.is_compatible(digest[::-1], whole)
    assert not rounding.is_compatible(whole, digest + whole[:1:-1])
