"""Reading and writing sound through libsndfile."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem, whole
from kronfield.files.description import describe_signal
from kronfield.files.guard import check_file_memory, decoding, extra, guarded
from kronfield.files.layout import Layout, Put
from kronfield.files.signal import Progress, Signal

_WHAT = "a WAV, FLAC or Ogg file"
# Samples read or written at a time; libvorbis fails on much larger blocks.
_BLOCK = 1 << 16
_FORMATS = {".wav": ("WAV", "PCM_16"), ".flac": ("FLAC", "PCM_16"), ".ogg": ("OGG", "VORBIS")}
_BITS = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}


def read_audio(path: Path, progress: Progress | None) -> Signal:
    """Read sound as (N,) or (N, C) in [-1, 1), with the times in seconds."""
    with extra("audio"):
        import soundfile

    with contextlib.ExitStack() as stack:
        with decoding(path, _WHAT):
            file = stack.enter_context(soundfile.SoundFile(path))
        total, rate, subtype, count = file.frames, file.samplerate, file.subtype, file.channels
        if total < 1 or rate < 1:
            raise problem("path", f"{path} with no samples", _WHAT, "Record or export it again.")
        dtype = np.float64 if subtype in ("DOUBLE", "PCM_32") else np.float32
        check_file_memory(
            path, total * (count * np.dtype(dtype).itemsize + 8.0), "Cut it into parts."
        )
        values = np.empty((total, count), dtype)
        done = _fill(values, guarded(_blocks(file, dtype), path, _WHAT), progress)
    if done < total:
        raise problem(
            "path",
            f"{path} with {done} samples",
            f"{total}, as its header states",
            "The file is truncated: copy it again.",
        )
    channels = count > 1
    values = values if channels else values[:, 0]
    bits = _BITS.get(subtype)
    described = describe_signal(
        "audio",
        path.name,
        values,
        axes=["time"],
        units=["s"],
        channels=[str(i) for i in range(count)] if channels else None,
        levels=None if bits is None else 2**bits - 1,
        dtype=values.dtype,
        raw_bytes=total * count * (np.dtype(dtype).itemsize if bits is None else bits // 8),
    )
    described = replace(described, rate=rate, subtype=subtype)
    return Signal("audio", values, channels, (np.arange(total) / rate,), None, described)


def _fill(values: Array, blocks: Iterable[Array], progress: Progress | None) -> int:
    """Fill ``values`` with the blocks of a file and return the number of samples read."""
    done = 0
    for block in blocks:
        values[done : done + len(block)] = block
        done += len(block)
        if progress is not None:
            progress(done, len(values))
    return done


def _blocks(file: Any, dtype: Any) -> Iterator[Array]:
    while len(block := file.read(_BLOCK, dtype=np.dtype(dtype).name, always_2d=True)):
        yield block


@contextlib.contextmanager
def open_audio(path: Path, layout: Layout) -> Iterator[Put]:
    """Write sound at ``info["rate"]``, with the bits of the source if possible, else with 16."""
    with extra("audio"):
        import soundfile

    name, usual = _FORMATS[path.suffix.lower()]
    count = layout.need("a sound", 1, range(1, 256), "Write a .npy file.")
    if layout.description.rate is None:
        raise problem("info", "no rate", "samples per second", 'Add it: {"rate": 44100}')
    rate = whole('info["rate"]', layout.description.rate, at_least=1)
    wanted = layout.description.subtype or usual
    subtype = wanted if soundfile.check_format(name, wanted) else usual
    bits = _BITS.get(subtype)

    with open(path, "w+b", buffering=0) as raw:  # unbuffered: errors occur only in write
        sink = _Sink(raw)
        try:
            file = soundfile.SoundFile(sink, "w", rate, count, subtype, format=name)
        except soundfile.LibsndfileError as error:
            raise problem(
                "info",
                f"{rate} Hz and {count} channels",
                f"a rate and channels that {name} supports",
                "Write a .wav file.",
            ) from error

        def put(block: Array) -> None:
            part = block.reshape(-1, count)
            for start in range(0, len(part), _BLOCK):
                piece = part[start : start + _BLOCK]
                samples = (
                    _whole_numbers(piece, bits)
                    if bits
                    else np.clip(piece, -1, 1)
                    if name == "OGG"
                    else piece
                )
                try:
                    file.write(samples)
                except (soundfile.LibsndfileError, AssertionError) as error:
                    sink.check()
                    raise OSError(f"{path.name} could not be written: {error}") from error
                sink.check()

        with file:
            yield put
        sink.check()


class _Sink:
    """A file for libsndfile that keeps errors, because libsndfile does not report them fully."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self.read, self.seek, self.tell = file.read, file.seek, file.tell
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write the data, or keep the error for `check`."""
        done = 0
        try:
            while done < len(data):
                done += self._file.write(data[done:])
        except OSError as error:
            self._error = self._error or error
        return done

    def check(self) -> None:
        """Raise the first error of writing, if there was one."""
        if self._error is not None:
            raise self._error


def _whole_numbers(values: Array, bits: int) -> Array:
    """Return values in [-1, 1) as integers of ``bits`` bits, in the high bits of int32."""
    half = 2.0 ** (bits - 1)
    scaled = np.nan_to_num(
        np.rint(values.astype(np.float64) * half), nan=0.0, posinf=half, neginf=-half
    )
    return np.clip(scaled, -half, half - 1).astype(np.int32) << np.int32(32 - bits)
