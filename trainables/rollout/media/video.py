"""A video file, whose frames are written as they arrive; it has its name only when it is complete.

The format is H.264 in MP4, which every browser plays. One thread encodes, so that equal frames give
equal files and parallel trials do not compete for cores. PyAV is an optional dependency, imported
with the first frame.
"""

import importlib.util
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Codec of the videos.
CODEC = "libx264"
#: Options of the codec.
OPTIONS = {"preset": "veryfast", "crf": "23"}
#: Ending of the files.
SUFFIX = ".mp4"


def is_installed() -> bool:
    """Return whether PyAV is installed, so that videos can be written."""
    return importlib.util.find_spec("av") is not None


class VideoFile:
    """Writes one MP4 file frame by frame.

    Until `close` the file's name is that of `path` plus ``.part``.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._fps = Fraction(fps).limit_denominator(1000)
        self._shape: tuple[int, ...] = ()
        self._container: Any = None
        self._stream: Any = None

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Write one picture (H, W, 3) of uint8; the first one creates folder and unfinished file.

        Raises ValueError if its size differs from the first one's, ImportError without PyAV.
        """
        import av

        if self._container is None:
            self._open(frame.shape)
        if frame.shape != self._shape:
            raise ValueError(
                f"a picture has the shape {frame.shape}, but the first one of the video has "
                f"{self._shape}; all pictures of an episode must have the same shape"
            )
        image = av.VideoFrame.from_ndarray(_with_even_sides(frame), format="rgb24")
        self._container.mux(self._stream.encode(image))

    def close(self) -> None:
        """Finish the file, flush it to the disk, and rename it to `path`.

        Without pictures no file is made.
        """
        if self._container is None:
            return
        self._container.mux(self._stream.encode())
        self._container.close()
        self._container = None
        with self._part.open("rb+") as written:
            os.fsync(written.fileno())
        self._part.replace(self._path)

    def discard(self) -> None:
        """Delete the unfinished file; do nothing after `close` or before the first picture."""
        if self._container is not None:
            self._container.close()
            self._container = None
            self._part.unlink(missing_ok=True)

    def _open(self, shape: tuple[int, ...]) -> None:
        """Create folder and unfinished file for pictures of this shape (H, W, 3)."""
        import av

        self._shape = shape
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._part.touch()  # PyAV's error would not name the file
        self._container = av.open(str(self._part), "w", format="mp4")
        self._stream = self._container.add_stream(CODEC, rate=self._fps, options=OPTIONS)
        self._stream.height, self._stream.width = (side + side % 2 for side in shape[:2])
        self._stream.pix_fmt = "yuv420p"
        self._stream.codec_context.thread_count = 1


def _with_even_sides(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the frame (H, W, 3) with even sides, as the codec requires.

    The last row or column is repeated if a side is odd.
    """
    height, width, _ = frame.shape
    if height % 2 or width % 2:
        frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(frame)
