"""Sound in and out."""

import os

import numpy as np
import pytest
import soundfile

import kronfield as kf
from kronfield.files import read, write, writer


def sound(count=3000, channels=None, seed=0):
    shape = (count,) if channels is None else (count, channels)
    noise = np.random.default_rng(seed).normal(0, 0.1, shape)
    return np.clip(np.cumsum(noise, axis=0) * 0.05, -1, 1)


LAYOUTS = [("wav", 8), ("wav", 16), ("wav", 24), ("wav", 32), ("flac", 16), ("flac", 24)]


@pytest.mark.parametrize(("suffix", "bits"), LAYOUTS)
@pytest.mark.parametrize("channels", [None, 2])
def test_whole_numbers(suffix, bits, channels, tmp_path):
    """Files that soundfile wrote, read; and written back to the same samples."""
    subtype = "PCM_U8" if bits == 8 else f"PCM_{bits}"
    samples = np.rint(sound(channels=channels) * 2 ** (bits - 1)).clip(
        -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    )
    samples[:2] = (
        [[-(2 ** (bits - 1))], [2 ** (bits - 1) - 1]]
        if channels
        else [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    )
    soundfile.write(
        tmp_path / f"a.{suffix}",
        samples.astype(np.int64).astype(np.int32) << (32 - bits),
        22050,
        subtype=subtype,
    )
    signal = read(tmp_path / f"a.{suffix}")
    assert (signal.kind, signal.channels, signal.info["rate"]) == (
        "audio",
        channels is not None,
        22050,
    )
    assert signal.info["levels"] == 2**bits - 1
    assert signal.info["raw_bytes"] == samples.size * bits // 8
    assert signal.values.dtype == (np.float64 if bits == 32 else np.float32)
    np.testing.assert_array_equal(signal.values, samples / 2 ** (bits - 1))
    assert -1 == signal.values.min() < signal.values.max() < 1
    np.testing.assert_allclose(signal.axes[0], np.arange(3000) / 22050, rtol=1e-12)
    write(tmp_path / f"b.{suffix}", signal.values, signal.info)
    np.testing.assert_array_equal(read(tmp_path / f"b.{suffix}").values, signal.values)


def test_floats_stay(tmp_path):
    for subtype, dtype in (("FLOAT", np.float32), ("DOUBLE", np.float64)):
        values = sound().astype(dtype) * 3
        soundfile.write(tmp_path / "a.wav", values, 8000, subtype=subtype)
        signal = read(tmp_path / "a.wav")
        assert signal.values.dtype == dtype
        assert signal.info["levels"] is None
        np.testing.assert_array_equal(signal.values, values)
        write(tmp_path / "a.wav", signal.values, signal.info, overwrite=True)
        np.testing.assert_array_equal(
            soundfile.read(tmp_path / "a.wav", dtype=np.dtype(dtype).name)[0], values
        )


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_in_blocks(suffix, tmp_path):
    values = sound(200_000, 2)
    with writer(tmp_path / f"a.{suffix}", (200_000,), 2, {"rate": 44100}) as file:
        for block in np.array_split(values, 7):
            file.write(block)
    calls = []
    signal = read(
        tmp_path / f"a.{suffix}", progress=lambda done, total: calls.append((done, total))
    )
    assert signal.values.shape == values.shape
    assert np.abs(signal.values - values).max() <= (0.1 if suffix == "ogg" else 2**-15)
    assert calls[-1] == (200_000, 200_000)
    assert len(calls) > 2


def test_clipped_and_rounded(tmp_path):
    values = np.array([-3, -1, -0.4 / 32768, 0.6 / 32768, 0.9999999, 1, np.inf, np.nan])
    write(tmp_path / "a.wav", values, {"rate": 8000})
    assert soundfile.read(tmp_path / "a.wav", dtype="int16")[0].tolist() == [
        -32768,
        -32768,
        0,
        1,
        32767,
        32767,
        32767,
        0,
    ]


def test_bits_that_a_format_does_not_have(tmp_path):
    write(tmp_path / "a.flac", sound(), {"rate": 8000, "subtype": "DOUBLE"})
    assert soundfile.info(tmp_path / "a.flac").subtype == "PCM_16"


def test_refusals(tmp_path):
    with pytest.raises(kf.InputError, match=r'no rate.*\{"rate": 44100\}'):
        write(tmp_path / "a.wav", sound(), {})
    with pytest.raises(kf.InputError, match="whole number"):
        write(tmp_path / "a.wav", sound(), {"rate": 0.5})
    with pytest.raises(kf.InputError, match="a sound 1 axis"):
        write(tmp_path / "a.wav", np.ones((3, 4, 5)), {"rate": 8000})
    with pytest.raises(kf.InputError, match="that FLAC supports"):
        write(tmp_path / "a.flac", np.ones((30, 12)), {"rate": 8000})  # FLAC has at most 8 channels
    assert os.listdir(tmp_path) == []
    (tmp_path / "a.wav").write_text("no sound")
    soundfile.write(tmp_path / "a.flac", sound(), 8000)
    (tmp_path / "a.flac").write_bytes((tmp_path / "a.flac").read_bytes()[:-500])
    for name in ("a.wav", "a.flac"):
        with pytest.raises(kf.InputError, match=r"cannot be read|as its header states"):
            read(tmp_path / name)
    soundfile.write(tmp_path / "b.wav", np.zeros(0), 8000)
    with pytest.raises(kf.InputError, match="no samples"):
        read(tmp_path / "b.wav")
