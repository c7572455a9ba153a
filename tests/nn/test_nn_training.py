"""The training loop: a small experiment of the paper, safety of a run, and networks as fields."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import kronfield as kf
from edits import edits
from kronfield.fitting.settings import DEFAULT
from kronfield.nn import CoordinateMLP, DivergenceError, Grid, NetworkField, as_field, train
from kronfield.nn.run import TrainingRun
from kronfield.nn.state import without_description

line = np.sin(6 * np.arange(64) / 64)
picture = np.random.default_rng(0).random((16, 16, 3)).cumsum(0).cumsum(1) / 100
SIMPLE = kf.Concatenated.with_diagonals(kf.Gaussian(8, 0.1), 2)


def network(depth=1, out=3, encoding=SIMPLE, seed=0, **settings):
    torch.manual_seed(seed)
    return CoordinateMLP(encoding, depth, width=16, out=out, **settings)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


# What is learned
# ------------------------------------------------------------------------------------------


def test_rank_decides_and_depth_makes_up_for_it():
    """Section 6.1 in small: a row of a photograph, 64 samples in, 64 in between to predict."""
    from skimage import data

    row = data.astronaut()[140, ::4, 0] / 255.0
    known, between = row[0::2], row[1::2]
    at = torch.arange(64, dtype=torch.float64)[:, None] / 64
    found = {}
    # a quarter of the paper's samples: its widths 0.003 and 0.04 times four
    for width in (0.012, 0.15):
        for depth in (0, 1):
            torch.manual_seed(0)
            encoding = kf.Kronecker(kf.Gaussian(64, width))
            model = CoordinateMLP(encoding, depth, 256, out=1)
            done = train(model, (at, known), epochs=600, rate=5e-3 if depth else 1e-1)
            fit = math.sqrt(done.best_loss)
            rest = done.field(at.numpy()[:-1] + 0.5 / 64)
            found[width, depth] = fit, float(np.sqrt(np.mean((rest - between[:-1]) ** 2)))
    high, low = found[0.012, 0], found[0.15, 0]
    assert high[0] < 0.05 * low[0]  # enough rank: the linear layer memorises
    assert high[1] < 0.7 * low[1]  # and predicts
    assert found[0.15, 1][0] < 0.6 * low[0]  # too little: one hidden layer makes up for it
    assert found[0.15, 1][1] < 0.75 * low[1]
    assert found[0.012, 1][1] < 1.5 * high[1]  # where rank is there, depth is not needed


def test_descent_on_one_layer_ends_in_the_closed_form():
    encoding = kf.Kronecker(kf.Gaussian(12, 0.05), kf.Triangle(10, 0.25))
    values = np.random.default_rng(0).random((12, 10, 2))
    axes = [np.arange(12) / 12, np.arange(10) / 10]
    closed = kf.fit(
        values, axes, encoding, domain=[(0, 1), (0, 1)], ridge=0.0, roughness=(0.0, 0.0)
    )
    model = CoordinateMLP(encoding, 0, out=2).double()
    done = train(model, values, epochs=3000, rate=0.05, schedule="cosine", weight_decay=0.0)
    difference = np.abs(done.field.on_grid(axes) - closed.on_grid(axes)).max()
    assert difference < 1e-3
    assert not isinstance(done.field, NetworkField)
    scale = np.abs(closed.weights).max()
    assert np.abs(done.field.weights - closed.weights).max() < 0.02 * scale


def test_a_warm_start_goes_on_from_the_closed_form():
    field = kf.fit(picture.astype(np.float32), encoding=kf.Kronecker(*[kf.Gaussian(8, 0.1)] * 2))
    model = CoordinateMLP.from_field(field, 1, 32)
    grid = Grid(*field.axes)
    start = float(np.mean((field.on_grid() - picture) ** 2))
    done = train(model, (grid, picture), epochs=150, rate=1e-3)
    assert done.losses[0] == pytest.approx(start, rel=1e-3)
    assert done.best_loss < 0.9 * start
    assert done.field.domain == field.domain
    still = train(CoordinateMLP.from_field(field, 0), (grid, picture), epochs=1, rate=1e-12)
    np.testing.assert_allclose(still.field.on_grid((20, 20)), field.on_grid((20, 20)), atol=1e-5)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("how", ["exact", "blending"])
def test_points_on_a_kronecker_encoding(depth, how):
    rng = np.random.default_rng(0)
    points = rng.random((300, 2))
    values = np.sin(5 * points[:, 0]) * points[:, 1]
    torch.manual_seed(0)
    model = CoordinateMLP(
        kf.Kronecker(*[kf.Gaussian(12, 0.1, padding=2)] * 2), depth, 16, out=1, points=how
    )
    done = train(model, (points, values), epochs=300, rate=2e-2 if depth else None)
    assert done.best_loss < 1e-3
    # blending is kept
    assert np.mean((done.field(points) - values) ** 2) == pytest.approx(done.best_loss, rel=1e-3)
    grid = np.linspace(0.1, 0.9, 5)
    mesh = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(
        done.field.on_grid([grid, grid]).ravel(), done.field(mesh), atol=1e-5
    )


# One step, however it is cut
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding", [SIMPLE, kf.Kronecker(kf.Gaussian(8, 0.1), kf.Gaussian(8, 0.1))], ids=repr
)
@pytest.mark.parametrize("held_out", [None, 0.25])
def test_chunks_change_nothing_but_rounding(encoding, held_out):
    results = []
    for chunk in (20, 10**9):
        model = network(2, encoding=encoding).double()
        done = train(model, picture, epochs=5, chunk=chunk, held_out=held_out)
        results.append((done.losses, done.held_out, weights(model)))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-10)
    for name, tensor in results[0][2].items():
        torch.testing.assert_close(tensor, results[1][2][name], rtol=1e-8, atol=1e-10)


def test_against_a_plain_loop():
    torch.manual_seed(0)
    model = network(2)
    plain = torch.nn.Sequential(
        torch.nn.Linear(32, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 3),
    )
    with torch.no_grad():
        for theirs, ours in zip(plain.parameters(), model.parameters(), strict=True):
            theirs.copy_(ours)
    points = Grid.even((16, 16)).points().reshape(-1, 2)
    features = torch.from_numpy(SIMPLE(points.double().numpy())).float()
    target = torch.from_numpy(picture.reshape(-1, 3)).float()
    optimiser = torch.optim.Adam(plain.parameters(), lr=5e-3, weight_decay=1e-8)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = ((plain(features) - target) ** 2).mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    done = train(model, picture, epochs=20)
    np.testing.assert_allclose(done.losses, losses, rtol=1e-4)


def test_losses_schedules_clipping_and_batches():
    for settings in (
        {"loss": "mae"},
        {"loss": "huber"},
        {"loss": lambda found, wanted: (found - wanted).abs().pow(1.5).mean()},
        {"schedule": "cosine"},
        {"schedule": "exponential"},
        {"schedule": "linear"},
        {"schedule": lambda t: 1 / (1 + t)},
        {"clip": 0.1},
        {"batch": 50},
        {"weight_decay": 1e-3},
    ):
        done = train(network(), picture, epochs=30, **settings)
        assert done.best_loss < 0.9 * done.losses[0], settings


def test_seeds_decide():
    runs = []
    for seed in (1, 1, 2):
        model = network()
        train(model, picture, epochs=3, batch=40, seed=seed)
        runs.append(weights(model))
    assert_same(runs[0], runs[1])
    assert not torch.equal(runs[0]["rest.1.weight"], runs[2]["rest.1.weight"])


# Safety
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{}, {"batch": 60}, {"held_out": 0.2}, {"schedule": "cosine", "clip": 1.0}],
    ids=repr,
)
def test_resuming_is_bit_identical(tmp_path, settings):
    whole = network(2)
    unbroken = train(whole, picture, epochs=12, every=3, **settings)
    path = tmp_path / "run.safetensors"

    def kill(epoch):
        if epoch.number == 7:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(network(2), picture, epochs=12, every=3, checkpoint=path, callback=kill, **settings)
    model = network(2, seed=5)  # whatever it starts with
    resumed = train(model, picture, epochs=12, every=3, checkpoint=path, resume=True, **settings)
    assert resumed.losses == unbroken.losses
    assert resumed.held_out == unbroken.held_out
    assert_same(weights(model), weights(whole))
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]


def test_resuming_a_finished_run_and_with_other_settings(tmp_path):
    path = tmp_path / "run.safetensors"
    first = train(network(), picture, epochs=4, checkpoint=path)
    again = train(network(seed=3), picture, epochs=4, checkpoint=path, resume=True)
    assert again.losses == first.losses
    with pytest.raises(kf.InputError, match="resume=True"):
        train(network(), picture, epochs=4, checkpoint=path)
    flipped = (Grid(*[x.flip(0) for x in Grid.even((16, 16), torch.float64).axes]), picture)
    for settings, model, data in (
        ({"epochs": 5}, network(), picture),
        ({"epochs": 4, "rate": 1e-3}, network(), picture),
        ({"epochs": 4, "held_out": 0.5}, network(), picture),
        ({"epochs": 4}, network(), picture + 1),
        ({"epochs": 4}, network(), flipped),
        ({"epochs": 4}, network(activation="tanh"), picture),
        ({"epochs": 4}, network().double(), picture),
        ({"epochs": 4}, network(domain=[(0, 2), (0, 1)]), picture),
    ):
        with pytest.raises(kf.InputError, match="same settings and data"):
            train(model, data, checkpoint=path, resume=True, **settings)
    kf.fit(line).save(path)
    with pytest.raises(kf.InputError, match="another kind"):
        train(network(), picture, epochs=4, checkpoint=path, resume=True)
    assert train(network(), picture, epochs=2, checkpoint=tmp_path / "new", resume=True).epochs == 2


def test_ctrl_c_returns_the_best_so_far():
    def interrupt(epoch):
        if epoch.number == 9:
            raise KeyboardInterrupt

    model = network()
    done = train(model, picture, epochs=1000, every=2, callback=interrupt)
    assert done.stopped_by == "interrupt"
    assert done.epochs == 10
    found = float(np.mean((done.field.on_grid() - picture) ** 2))
    assert found == pytest.approx(done.best_loss, rel=1e-4)
    assert done.best_loss <= min(done.losses)  # the last step counts too


def test_a_callback_can_stop_and_sees_the_figures():
    seen = []

    def callback(epoch):
        seen.append(epoch)
        return epoch.number == 3

    done = train(network(), picture, epochs=50, callback=callback, schedule="linear")
    assert done.stopped_by == "callback"
    assert [one.loss for one in seen] == done.losses
    assert seen[1].rate == pytest.approx(5e-3 * 0.98)


def test_early_stop_keeps_the_best_by_held_out_loss():
    rng = np.random.default_rng(0)
    # noise: learning it by heart does not help
    points, values = rng.random((40, 2)), rng.standard_normal(40)
    model = CoordinateMLP(kf.Kronecker(*[kf.Gaussian(16, 0.03)] * 2), 0, out=1)
    done = train(model, (points, values), epochs=500, held_out=0.3, patience=20, every=1)
    assert done.stopped_by == "patience"
    assert done.epochs == done.best_epoch + 21
    assert done.best_loss == min(value for _, value in done.held_out)
    given = train(network(out=1), (points, values), epochs=5, held_out=(points[:5], values[:5]))
    assert len(given.held_out) == 5


def test_divergence_says_what_to_change():
    model = network(2)
    with pytest.raises(DivergenceError, match=r"smaller rate \(\d.*clip"):
        train(model, picture, epochs=200, rate=1e3)
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


def test_either_side_of_diverged():
    """A loss a thousand times that of the mean may come back, one a million times does not."""
    given = SimpleNamespace(
        data=SimpleNamespace(values=torch.ones(4, 2)),
        model=SimpleNamespace(out=2),
        loss=torch.nn.functional.mse_loss,  # that of zero is 1, of the mean 0
        _evaluate=lambda data: 0.5,
    )
    assert 1e3 < TrainingRun._bound(given, DEFAULT.networks.diverged) < 1e6


def test_threads_are_put_back():
    before = torch.get_num_threads()
    train(network(), picture, epochs=1, threads=1)
    assert torch.get_num_threads() == before


def test_the_report_and_the_bar(capsys):
    done = train(network(), picture, epochs=3, progress=True)
    assert re.search(r"3 epochs in .* s, stopped by epochs", str(done))
    assert capsys.readouterr().out == ""


def test_learned_encodings_resume_too(tmp_path):
    path = tmp_path / "run.safetensors"
    encoding = kf.Concatenated(kf.Gaussian(8, 0.1), kf.Sine(6, 1.0))
    settings = {"trainable": ["width", "frequencies"], "encoding": encoding}
    whole = network(1, **settings)
    unbroken = train(whole, picture, epochs=6, every=2)

    def kill(epoch):
        if epoch.number == 3:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(network(1, **settings), picture, epochs=6, every=2, checkpoint=path, callback=kill)
    model = network(1, seed=4, **settings)
    assert (
        train(model, picture, epochs=6, every=2, checkpoint=path, resume=True).losses
        == unbroken.losses
    )
    assert_same(weights(model), weights(whole))


def test_an_interrupt_in_the_middle_of_an_epoch_leaves_the_last_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    whole = network()
    unbroken = train(whole, picture, epochs=6, batch=50, every=2)
    calls = []

    def interrupting(found, wanted):
        calls.append(1)
        if len(calls) == 23:  # six batches an epoch, and looks
            raise KeyboardInterrupt
        return torch.nn.functional.mse_loss(found, wanted)

    interrupting.__qualname__ = "my_loss"

    def plain(found, wanted):
        return torch.nn.functional.mse_loss(found, wanted)

    plain.__qualname__ = "my_loss"
    done = train(
        network(), picture, epochs=6, batch=50, every=2, checkpoint=path, loss=interrupting
    )
    assert done.stopped_by == "interrupt"
    assert 0 < done.epochs < 6
    model = network(seed=8)
    again = train(
        model, picture, epochs=6, batch=50, every=2, checkpoint=path, resume=True, loss=plain
    )
    assert again.losses == unbroken.losses
    assert_same(weights(model), weights(whole))


def test_an_interrupt_at_once_returns_what_there_is(tmp_path):
    def stop(found, wanted):
        raise KeyboardInterrupt

    done = train(network(), picture, epochs=6, checkpoint=tmp_path / "a", loss=stop)
    assert done.stopped_by == "interrupt"
    assert done.epochs == 0


def test_a_run_stopped_by_patience_stays_stopped(tmp_path):
    rng = np.random.default_rng(0)
    data = rng.random((40, 2)), rng.standard_normal(40)
    settings = {
        "epochs": 500,
        "held_out": 0.3,
        "patience": 5,
        "every": 1,
        "checkpoint": tmp_path / "a",
    }
    encoding = kf.Kronecker(*[kf.Gaussian(16, 0.03)] * 2)
    first = train(CoordinateMLP(encoding, 0, out=1), data, **settings)
    again = train(CoordinateMLP(encoding, 0, out=1), data, **settings, resume=True)
    assert first.stopped_by == again.stopped_by == "patience"
    assert again.losses == first.losses


def test_the_best_loss_of_minibatches_is_that_of_the_weights():
    for settings in ({}, {"callback": lambda epoch: epoch.number == 2}):
        model = network()
        done = train(model, picture, epochs=10, batch=8, **settings)
        found = float(np.mean((done.field.on_grid() - picture) ** 2))
        assert found == pytest.approx(done.best_loss, rel=1e-4)
        assert found < 0.5 * picture.var() + picture.mean() ** 2


def test_a_perfect_start_does_not_diverge():
    flat = np.full((16, 16), 0.5)
    field = kf.fit(flat)
    done = train(CoordinateMLP.from_field(field, 0), (Grid(*field.axes), flat), epochs=20)
    assert done.best_loss < 1e-10
    assert done.best_epoch == 0


def test_samples_that_do_not_count_stay_out():
    from kronfield.nn import Samples

    values = torch.from_numpy(picture).clone()
    used = torch.ones(16, 16, dtype=torch.bool)
    values[3, 4], used[3, 4] = 1e6, False
    data = Samples(Grid.even((16, 16)), values, True, used)
    for settings in ({}, {"held_out": 0.2}, {"batch": 50}):
        assert max(train(network(), data, epochs=3, **settings).losses) < 10


def test_psnr_belongs_to_the_mean_square():
    assert train(network(), picture, epochs=2, loss="mae").psnr is None
    assert "PSNR" not in str(train(network(), picture, epochs=2, loss="mae"))
    assert train(network(), picture, epochs=2).psnr > 0


def test_a_loss_with_an_infinite_gradient_is_named():
    with pytest.raises(DivergenceError, match="gradient"):
        train(
            network(0),
            np.zeros((4, 4, 3)),
            epochs=50,
            loss=lambda found, wanted: (found / 0.0).sum(),
        )


# A network as a field
# ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def field():
    torch.manual_seed(0)
    model = CoordinateMLP(SIMPLE, 2, 16, activation="tanh", domain=[(-2, 2), (0, 10)]).double()
    return as_field(model)


def test_evaluation_calls(field):
    assert isinstance(field, kf.Field)
    x, y = np.linspace(-2, 2, 7), np.linspace(0, 10, 5)
    values = field.on_grid([x, y])
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(field(points).reshape(7, 5, 3), values, atol=1e-12)
    np.testing.assert_allclose(field.on_grid([x[::-1], y]), values[::-1])
    assert field.on_grid((4, 6)).shape == (4, 6, 3)
    out = np.empty((7, 5, 3))
    assert field.on_grid([x, y], out=out) is out
    with pytest.raises(kf.InputError, match="outside"):
        field(np.array([[3.0, 1.0]]))
    assert np.isnan(field(np.array([[3.0, 1.0]]), outside="nan")).all()
    np.testing.assert_allclose(
        field(np.array([[3.0, 1.0]]), outside="clamp"), field(np.array([[2.0, 1.0]]))
    )
    with pytest.raises(kf.InputError, match="state_dict"):
        _ = field.weights


def test_derivatives_against_differences(field):
    points, h = np.random.default_rng(0).random((6, 2)) * [3, 8] + [-1.5, 1], 1e-4
    for axis in (0, 1):
        step = h * np.eye(2)[axis]
        np.testing.assert_allclose(
            field.gradient(points)[:, axis],
            (field(points + step) - field(points - step)) / (2 * h),
            atol=1e-5,
        )
    second = sum(
        (field(points + s) - 2 * field(points) + field(points - s)) / h**2 for s in h * np.eye(2)
    )
    np.testing.assert_allclose(field.laplacian(points), second, atol=1e-4)
    x, y = np.linspace(-1, 1, 3), np.linspace(2, 3, 4)
    grid = field.on_grid([x, y], derivative=(1, 0))
    inside = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(grid.reshape(-1, 3), field.gradient(inside)[:, 0], atol=1e-12)
    jumps = as_field(CoordinateMLP(kf.Concatenated(kf.Rectangle(8, 0.2)), 1, 8))
    with pytest.raises(kf.InputError, match="no derivative"):
        jumps.gradient(np.array([[0.5]]))
    hats = as_field(CoordinateMLP(kf.Concatenated(kf.Triangle(8, 0.2)), 1, 8))
    assert not hats.laplacian(np.array([[0.51]])).any()  # made of straight pieces


def test_integral_against_a_fine_mean(field):
    box = [(-1.0, 1.5), (2.0, 7.0)]
    axes = [low + (high - low) * (np.arange(400) + 0.5) / 400 for low, high in box]
    np.testing.assert_allclose(
        field.integral(box), 12.5 * field.on_grid(axes).mean(axis=(0, 1)), rtol=1e-3, atol=1e-3
    )


def test_digits_survive_a_far_away_domain():
    model = CoordinateMLP(SIMPLE, 1, 16, domain=[(1e9, 1e9 + 1), (0, 1)])
    near = CoordinateMLP(SIMPLE, 1, 16)
    near.load_state_dict(without_description(model.state_dict()))  # in other units
    points = np.random.default_rng(0).random((20, 2))
    np.testing.assert_allclose(
        as_field(model)(points + np.array([1e9, 0.0])), as_field(near)(points), atol=1e-4
    )


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_save_and_load(field, tmp_path, dtype):
    path = tmp_path / "net.field"
    field.info["source"] = "test"
    saved = field.save(path, dtype=dtype)
    again = kf.load(path)
    points = np.random.default_rng(0).random((6, 2))
    assert isinstance(again, NetworkField)
    assert again.info == {"source": "test"}
    assert again.domain == field.domain
    if dtype is None:
        assert saved.largest_error == 0
        np.testing.assert_array_equal(again(points), field(points))
        np.testing.assert_array_equal(again.on_grid(), field.on_grid())
    else:
        assert 0 < saved.rms_error < 1e-3
        np.testing.assert_allclose(again(points), field(points), atol=0.01)
    damaged = path.read_bytes()[:-7]
    (tmp_path / "bad.field").write_bytes(damaged)
    with pytest.raises(kf.InputError, match="damaged"):
        kf.load(tmp_path / "bad.field")


def test_a_trained_kronecker_network_saves_too(tmp_path):
    model = CoordinateMLP(
        kf.Kronecker(kf.Gaussian(8, 0.1)), 1, 8, out=1, points="blending", trainable=[]
    )
    done = train(model, line, epochs=3)
    done.field.save(tmp_path / "a.field")
    np.testing.assert_array_equal(kf.load(tmp_path / "a.field").on_grid(), done.field.on_grid())
    odd = as_field(CoordinateMLP(SIMPLE, 1, 8, activation=torch.nn.Softplus))
    with pytest.raises(kf.InputError, match="state_dict"):
        odd.save(tmp_path / "b.field")
    assert not (tmp_path / "b.field").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train(torch.nn.Linear(2, 3), picture), "CoordinateMLP"),
        (lambda: train(network(), picture[..., 0]), "3 channels"),
        (lambda: train(network(), np.full((4, 4, 3), np.nan)), "finite"),
        (lambda: train(network(), (np.zeros((5, 3)), np.zeros((5, 3)))), r"shape \(P, 2\)"),
        (lambda: train(network(), (np.zeros((5, 2)), np.zeros((4, 3)))), "one for each"),
        (lambda: train(network(), (np.zeros((0, 2)), np.zeros((0, 3)))), "shape"),
        (lambda: train(network(), picture + 1j), "real numbers"),
        (lambda: train(network(), (Grid(np.arange(16.0), np.arange(16.0)), picture)), "domain="),
        (lambda: train(network(), (np.full((5, 2), np.nan), np.zeros((5, 3)))), "finite positions"),
        (lambda: train(network().half(), picture), "float16"),
        (lambda: CoordinateMLP.from_field(as_field(network())), "fit_points"),
        (lambda: train(network(), picture, epochs=0), "epochs"),
        (lambda: train(network(), picture, rate=-1), "rate"),
        (lambda: train(network(), picture, betas=(0.9, 1.0)), "betas"),
        (lambda: train(network(), picture, loss="hinge"), "mse"),
        (lambda: train(network(), picture, schedule="steps"), "cosine"),
        (lambda: train(network(), picture, patience=3), "held_out"),
        (lambda: train(network(), picture, held_out=1.5), "held_out"),
        (lambda: train(network(), picture, resume=True), "checkpoint"),
        (lambda: as_field(torch.nn.Linear(2, 3)), "CoordinateMLP"),
        (lambda: as_field(network(), channels=False), "channels"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(kf.InputError, match=message):
        call()


def test_edited_networks_and_checkpoints_raise_errors_for_users(tmp_path):
    """With a valid checksum, an entry of another kind is either harmless or refused."""
    values = np.random.default_rng(0).random((5, 5))

    def trained(path):
        small = kf.Kronecker(kf.Gaussian(4, 0.2), kf.Gaussian(4, 0.2))
        model = CoordinateMLP(small, 1, 4, 1)
        return train(model, values, epochs=2, checkpoint=path, resume=path.exists())

    def use(path):
        field = kf.load(path)
        field(np.full((2, 2), 0.3))
        field.on_grid()

    trained(tmp_path / "a.ckpt").field.save(tmp_path / "a.field")
    refused, others = 0, []
    for path, load in ((tmp_path / "a.field", use), (tmp_path / "a.ckpt", trained)):
        for edited in edits(path, 60):
            try:
                load(edited)
            except kf.InputError:
                refused += 1
            except Exception as error:  # noqa: BLE001
                others.append((path.name, type(error).__name__, str(error)[:80]))
    assert not others
    assert refused > 60
