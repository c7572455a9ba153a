"""One thread of BLAS, threads of our own, and results that depend on neither."""

import functools
import os
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pandas
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import kronfield as kf
from kronfield._core import threads
from kronfield._core.threads import in_threads, one_blas_thread, with_one_blas_thread
from kronfield.fitting import settings


def blas_threads():
    return [
        library.get_num_threads()
        for library in ThreadpoolController().select(user_api="blas").lib_controllers
    ]


@functools.cache
def _jobs():
    """Large enough for threads to share out, and all ways to a result."""
    rng = np.random.default_rng(0)
    x, y = np.mgrid[0:300, 0:260]
    picture = ((x > 140) + np.sin(y / 9))[..., None] * [1.0, 0.5, 0.2] + 0.01 * rng.random(
        (300, 260, 3)
    )
    noisy = np.sin(x / 40) * np.cos(y / 50) + 0.2 * rng.standard_normal(x.shape)
    volume = np.sin(np.arange(60_000) / 7).reshape(40, 30, 50)
    points = rng.random((20_000, 2))
    values = np.sin(9 * points[:, 0]) * points[:, 1]
    waves = kf.Kronecker(kf.RandomFourier(300, 40.0, seed=0), kf.RandomFourier(260, 40.0, seed=1))
    gaussians = kf.Kronecker(kf.Gaussian(300, 0.002), kf.Gaussian(260, 0.0024))
    hats = kf.Triangle(128, 2 / 128)
    mask = rng.random((300, 260)) < 0.6
    holes = np.zeros(noisy.shape, dtype=bool)
    holes[60:70, 40:52] = True
    many = rng.random((1500, 5))
    waved = np.sin(3 * many).sum(axis=1) + 0.1 * rng.standard_normal(1500)
    outliers = values[:1000] + 5.0 * (np.arange(1000) % 40 == 0)

    @functools.cache
    def field():
        return kf.fit(picture, encoding=gaussians, ridge=0.0)

    @functools.cache
    def scattered():
        return kf.fit_points(points[:1000], values[:1000], hats, roughness=(0.0, 1e-5))

    def dual(count, direct_points=5000):
        limit = settings.changed(settings.DEFAULT, "dual", "direct_points", direct_points)
        limit = settings.changed(limit, "dual", "inducing_points", 250)
        found = kf.fit_points(many[:count], waved[:count], ridge=0.1, settings=limit)
        return [*found.weights.ravel(), *found.standard_error(many[:9]).ravel()]

    def labelled():
        table = pandas.DataFrame(points[:1000], columns=["y", "x"])
        return kf.fit_points(table, pandas.Series(values[:1000])).weights

    def statistics():
        seen = kf.Statistics(hats, domain=[(0, 1), (0, 1)])
        seen.add(points, np.stack([values, values**2], axis=1))
        return seen.solve(roughness=(0.0, 1e-6)).weights

    return {
        "all chosen": lambda: kf.fit(picture).weights,
        "float32": lambda: kf.fit(picture.astype(np.float32)).on_grid((500, 400)),
        "noise found or not": lambda: kf.fit(noisy).weights,
        "gcv": lambda: kf.fit(noisy, roughness="gcv").weights,
        "banded": lambda: kf.fit(picture, encoding=gaussians, ridge=0.0).weights,
        "dense": lambda: kf.fit(picture, encoding=waves, ridge=0.0).weights,
        "chosen ridge": lambda: kf.fit(picture, encoding=gaussians).weights,
        "volume": lambda: kf.fit(volume).weights,
        "line": lambda: kf.fit(picture.ravel()).weights,
        "on a grid": lambda: field().on_grid((700, 600), (1, 0)),
        "at points": lambda: field()(points * [200, 200]),
        "integral": lambda: field().integral(),
        "residual": lambda: kf.fit(picture, encoding=gaussians, ridge=1.0).report.residual,
        "points, chosen": lambda: kf.fit_points(points[:1500], values[:1500]).weights,
        "points, few": lambda: kf.fit_points(points[:200], values[:200]).weights,
        "points, blended": lambda: (
            kf.fit_points(
                points, values, kf.Gaussian(60, 0.03), ridge=1e-3, rows="blending"
            ).weights
        ),
        "standard error": lambda: scattered().standard_error(points[:9], noise=0.1),
        "mask": lambda: kf.fit(picture[:150, :130, 0], mask=mask[:150, :130]).weights,
        "statistics": statistics,
        "trend": lambda: kf.fit_points(points[:1000], values[:1000], trend=1).on_grid(),
        "Huber's loss": lambda: kf.fit_points(points[:1000], outliers, loss="huber").weights,
        "coverage": lambda: (
            kf.fit_points(points[:300], values[:300], ridge=0.1).report.coverage.inside
        ),
        "dual form": lambda: dual(300),
        "inducing points": lambda: dual(1500, direct_points=1000),
        "noise removed": lambda: kf.denoise(picture, noise=0.1).on_grid(),
        "noise removed thoroughly": lambda: kf.denoise(noisy[:96, :96], thorough=True).on_grid(),
        "noise removed beside gaps": lambda: kf.denoise(
            noisy[:90, :80], mask=holes[:90, :80]
        ).on_grid(),
        "filled": lambda: kf.fit(noisy[:90, :80], mask=holes[:90, :80], noise=0.0).on_grid(),
        "labelled": labelled,
        "stable rank": lambda: kf.stable_rank(kf.Gaussian(300, 0.01)(kf.even_axis(300))),
    }


@pytest.mark.parametrize("name", list(_jobs()))
def test_results_do_not_depend_on_the_number_of_threads(name, monkeypatch):
    job = _jobs()[name]
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kf.RankWarning)
        for ours, theirs in ((1, 1), (2, 2), (5, 1)):
            monkeypatch.setattr(threads, "_allowed", lambda count=ours: count)
            with threadpool_limits(theirs, user_api="blas"):
                found.append(job())
    for other in found[1:]:
        assert np.array_equal(other, found[0])


def test_results_do_not_depend_on_the_environment():
    code = (
        "import numpy as np, kronfield as kf, hashlib\n"
        "v = np.random.default_rng(0).random((200, 180, 3))\n"
        "p = v[:20, :, :2].reshape(-1, 2)\n"
        "f, g = kf.fit(v), kf.fit_points(p, v[:20, :, 2].ravel(), roughness=(0.0, 1e-3))\n"
        "print(hashlib.sha256(f.weights.tobytes() + g.weights.tobytes()).hexdigest())\n"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "OPENBLAS_NUM_THREADS": count, "OMP_NUM_THREADS": count},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for count in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len(found[0].strip()) == 64


def test_blas_has_one_thread_within_and_as_many_as_before_after():
    with threadpool_limits(2, user_api="blas"):
        assert set(blas_threads()) == {2}
        with one_blas_thread():
            assert set(blas_threads()) == {1}
            with one_blas_thread():
                assert set(blas_threads()) == {1}
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {2}


def test_an_error_gives_the_threads_back():
    @with_one_blas_thread
    def fail():
        """Say what is wrong."""
        raise ValueError("wrong")

    assert fail.__doc__ == "Say what is wrong."
    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(ValueError, match="wrong"):
            fail()
        with pytest.raises(kf.InputError):
            kf.fit(np.array([np.nan, 1.0]))
        assert set(blas_threads()) == {2}


def test_calls_from_many_threads_are_limited_and_give_the_threads_back():
    values = np.random.default_rng(0).random((60, 60))
    # this thread is the first to set the number
    seen, found, wanted = [], [], kf.fit(values).weights

    def caller():
        for _ in range(5):
            with one_blas_thread():
                seen.append(set(blas_threads()))
                found.append(kf.fit(values).weights)

    with threadpool_limits(2, user_api="blas"):
        callers = [threading.Thread(target=caller) for _ in range(8)]
        for one in callers:
            one.start()
        for one in callers:
            one.join()
        assert set(blas_threads()) == {2}
    assert seen == [{1}] * 40
    assert len(found) == 40
    assert all(np.array_equal(one, wanted) for one in found)


def test_calls_that_overlap_give_the_threads_back_whoever_ends_last():
    with threadpool_limits(2, user_api="blas"):
        entered, leave = threading.Event(), threading.Event()

        def other():
            with one_blas_thread():
                entered.set()
                leave.wait(10)

        thread = threading.Thread(target=other)
        with one_blas_thread():
            thread.start()
            assert entered.wait(10)
        assert set(blas_threads()) == {1}  # the other is still at work
        leave.set()
        thread.join()
        assert set(blas_threads()) == {2}


class PerThread:
    """A BLAS on OpenMP: every thread that calls it has its own number of threads."""

    threading_layer = "openmp"

    def __init__(self):
        self.counts = {}

    def get_num_threads(self):
        return self.counts.get(threading.get_ident(), 4)

    def set_num_threads(self, count):
        self.counts[threading.get_ident()] = count


def test_libraries_with_a_number_for_every_thread(monkeypatch):
    library, blas = PerThread(), threads._Blas()
    monkeypatch.setattr(blas, "_refresh", lambda: None)
    blas._libraries = [library]
    within = []

    def other():
        blas.enter()
        within.append(library.get_num_threads())
        blas.leave()
        within.append(library.get_num_threads())

    blas.enter()
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert within == [1, 4]
    assert library.get_num_threads() == 1
    blas.leave()
    assert library.get_num_threads() == 4


def test_a_library_that_is_loaded_within_a_call_is_limited_too():
    code = (
        "import sys\n"
        "from kronfield._core.threads import one_blas_thread, scipy_linalg\n"
        "from threadpoolctl import ThreadpoolController\n"
        "import numpy\n"
        "def counts():\n"
        "    blas = ThreadpoolController().select(user_api='blas')\n"
        "    return [library.get_num_threads() for library in blas.lib_controllers]\n"
        "before = counts()\n"
        "assert 'scipy.linalg' not in sys.modules\n"
        "with one_blas_thread():\n"
        "    scipy_linalg()\n"
        "    assert set(counts()) == {1}, counts()\n"
        "assert len(counts()) >= len(before) and set(counts()) == set(before), counts()\n"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_the_number_of_threads_follows_the_limit_of_blas(monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    with threadpool_limits(1, user_api="blas"):
        assert threads.threads() == 1
    with threadpool_limits(2, user_api="blas"):
        assert threads.threads() == 2
        with one_blas_thread():
            assert threads.threads() == 2  # ours: BLAS itself has one
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert threads.threads() == 1


def test_work_is_shared_out_in_order_and_settings_of_numpy_hold(monkeypatch):
    monkeypatch.setattr(threads, "_allowed", lambda: 3)
    huge = np.float32(3e38)
    with np.errstate(over="ignore"):  # a warning is an error in the tests
        results = in_threads(
            lambda i: (huge * i, in_threads(lambda j: i + j, [1, 2]))[1], range(200)
        )
    assert results == [[i + 1, i + 2] for i in range(200)]


def test_an_error_in_a_thread_arrives(monkeypatch):
    monkeypatch.setattr(threads, "_allowed", lambda: 2)

    def work(i):
        if i == 5:
            raise KeyError(i)
        return i

    with pytest.raises(KeyError):
        in_threads(work, range(10))


def test_work_goes_on_when_python_starts_no_more_threads():
    code = (
        "import atexit, numpy as np, kronfield as kf\n"
        "v = np.random.default_rng(0).random((200, 180, 3))\n"
        "w = kf.fit(v).weights\n"
        "atexit.register(lambda: print(np.array_equal(kf.fit(v).weights, w)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_a_fork_within_a_call_leaves_in_good_order():
    blas = threads._Blas()
    blas.enter()
    blas.forked()
    blas.leave()
    assert blas._depth == 0


def test_other_work_does_not_hold_up_what_is_done(monkeypatch):
    monkeypatch.setattr(threads, "_allowed", lambda: 2)
    go, busy = threading.Event(), threading.Event()

    def slow(i):
        busy.set()
        go.wait(20)

    others = [threading.Thread(target=in_threads, args=(slow, range(4))) for _ in range(3)]
    for other in others:
        other.start()
    assert busy.wait(10)
    assert in_threads(lambda i: i, [1, 2]) == [1, 2]  # would wait for ever behind those in the pool
    go.set()
    for other in others:
        other.join()


def test_after_an_error_nothing_goes_on(monkeypatch):
    monkeypatch.setattr(threads, "_allowed", lambda: 2)
    running, done = threading.Semaphore(0), []

    def work(i):
        if i == 0:
            running.acquire(timeout=10)
            raise KeyError(i)
        running.release()
        time.sleep(0.05)
        done.append(i)

    with pytest.raises(KeyError):
        in_threads(work, range(1000))
    count = len(done)
    time.sleep(0.2)
    assert len(done) == count < 20


def test_a_forked_process_can_fit():
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    code = (
        "import os, numpy as np, kronfield as kf\n"
        "v = np.random.default_rng(0).random((200, 180, 3))\n"
        "w = kf.fit(v).weights\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(0 if np.array_equal(kf.fit(v).weights, w) else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
