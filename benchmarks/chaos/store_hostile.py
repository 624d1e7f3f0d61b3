"""Hostile checkpoints: none runs code, ends the process, or takes a second.

    python -m benchmarks.chaos.store_hostile [--out DIR] [--rounds N] [--seed S]

Listed attacks are followed by `FUZZED` files per round, which are random changes of attacks and of
valid files. All have right digests, so that only the readers can refuse them. Monitored processes
read them (`jail`, `store_reader`).
"""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chaos.store_cases import Cases, main
from benchmarks.chaos.strangers import Jail, read_all
from tests.support.attacks import FILES, PICKLES, PROTO, crafted, sealed, section, with_header
from trainables.checkpoint.pickle_scan import ALLOWED
from trainables.checkpoint.state import pack
from trainables.core import rng

JAIL = Jail("benchmarks.chaos.store_reader", memory_mib=600, limit_s=300.0)
#: Numbers of files in one round, and for one process.
FUZZED, BATCH = 2000, 1000
#: Bytes with a meaning in a header.
_JSON_BYTES = np.frombuffer(b'0123456789[]{}",:-eE.n\x00\xff', np.uint8)


def run(out: Path, rounds: int, seed: int) -> int:
    """Test the list and `rounds` rounds of random files; return the number of failed cases."""
    cases = Cases(out, "store_hostile")
    attacks = {**FILES, **{f"pickle {name}": checkpoint_of(body) for name, body in PICKLES.items()}}
    named = {name: resealed(content) for name, content in attacks.items()}
    cases.run("the list of attacks", partial(read_all, JAIL, named, good=0))
    for number in range(rounds):
        for start in range(0, FUZZED, BATCH):
            stream = rng.generator(seed, "hostile", number, start)
            files = {f"{start + i}": make_file(stream) for i in range(BATCH)}
            cases.run(f"seed {seed} round {number} from {start}", partial(read_all, JAIL, files))
    return cases.close()


def checkpoint_of(pickled: bytes) -> bytes:
    """Return a file with the state `pickled` and a right digest."""
    digest = hashlib.sha256(pickled).hexdigest()
    part = section(len=len(pickled), shape=[len(pickled)], sha256=digest)
    return crafted(pickled, sections=[part])


def resealed(content: bytes) -> bytes:
    """Return `content` with a right digest if it begins like a checkpoint, else unchanged."""
    return sealed(content[:-32]) if content.startswith(b"SWCK") else content


def make_file(stream: np.random.Generator) -> bytes:
    """Return a random file."""
    makers = (_opcodes, _spliced, _damaged_pickle, _damaged_header)
    return makers[int(stream.integers(len(makers)))](stream)


def _opcodes(stream: np.random.Generator) -> bytes:
    """Return a pickle of mostly allowed opcodes with arguments of mostly right lengths."""
    codes = list(ALLOWED)
    body = bytearray(PROTO)
    for _ in range(int(stream.integers(1, 60))):
        if stream.random() < 0.05:
            body += stream.bytes(1)
            continue
        code = codes[int(stream.integers(len(codes)))]
        body += code.encode("latin-1") + _argument(code, stream)
    return checkpoint_of(bytes(body) + b".")


def _argument(code: str, stream: np.random.Generator) -> bytes:
    width, counted = ALLOWED[code][:2]
    if not counted:
        return bytes(int(width)) if stream.random() < 0.5 else stream.bytes(int(width))
    count = int(stream.integers(0, 12))
    return count.to_bytes(int(width), "little") + stream.bytes(count)


def _spliced(stream: np.random.Generator) -> bytes:
    """Return the beginning of one pickle and the end of another."""
    pool = [body for body in PICKLES.values() if len(body) < 10_000]
    pool += [pack(_valid_state(stream)).pickled] * len(pool)
    one, other = (pool[int(stream.integers(len(pool)))] for _ in range(2))
    at, start = int(stream.integers(len(one) + 1)), int(stream.integers(len(other) + 1))
    return checkpoint_of(one[:at] + other[start:])


def _damaged_pickle(stream: np.random.Generator) -> bytes:
    body = bytearray(pack(_valid_state(stream)).pickled)
    for _ in range(int(stream.integers(1, 4))):
        body[int(stream.integers(len(body)))] = int(stream.integers(256))
    return checkpoint_of(bytes(body))


def _damaged_header(stream: np.random.Generator) -> bytes:
    """Return a valid file with some changed bytes in its header."""
    text = bytearray(
        json.dumps({"format": 1, "min_reader": 1, "step": 1, "sections": [section()]}).encode()
    )
    for _ in range(int(stream.integers(1, 4))):
        at = int(stream.integers(len(text)))
        text[at : at + int(stream.integers(2))] = stream.choice(_JSON_BYTES, 1).tobytes()
    return with_header(bytes(text), data=b"\x80\x04}.")


def _valid_state(stream: np.random.Generator) -> dict[str, Any]:
    return {
        "a": [1, 2.5, None, True, "text", b"bytes", -(2**40)],
        "b": {3: (1, 2, 3, 4), "s": {1, 2}, "f": frozenset({"x"})},
        "c": np.arange(int(stream.integers(1, 9)), dtype=np.float32),
        "d": np.float64(0.5),
    }


if __name__ == "__main__":
    main(run, rounds=5)
