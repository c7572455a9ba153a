"""A state_dict loads only onto the features that its weights were learned on."""

import copy

import pytest
import torch

import kronfield as kf
from kronfield.nn import (
    ConcatenatedLinear,
    CoordinateMLP,
    Encode,
    FactoredLinear,
    Grid,
    KroneckerLinear,
    train,
)


def waves(seed=0, scale=2.0):
    return kf.RandomFourier(8, scale, seed=seed)


def pair(*embedders):
    return kf.Kronecker(*embedders)


MODULES = {
    "Encode": lambda encoding, **more: Encode(encoding, **more),
    "KroneckerLinear": lambda encoding, **more: KroneckerLinear(encoding, 3, **more),
    "FactoredLinear": lambda encoding, **more: FactoredLinear(encoding, 3, 2, **more),
    "CoordinateMLP": lambda encoding, **more: CoordinateMLP(encoding, 1, 4, **more),
    "ConcatenatedLinear": lambda encoding, **more: ConcatenatedLinear(
        kf.Concatenated(*encoding.embedders), 3, **more
    ),
}
modules = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
hat = kf.Triangle(6, 0.4)
OTHERS = {
    "seed is 0 in the state_dict, 1 in the module": (pair(waves(0), hat), pair(waves(1), hat)),
    "scale is 2.0": (pair(waves(0), hat), pair(waves(0, 3.0), hat)),
    "width is 0.1": (pair(kf.Gaussian(6, 0.1), hat), pair(kf.Gaussian(6, 0.2), hat)),
    "padding is 0": (pair(hat, hat), pair(hat, kf.Triangle(6, 0.4, padding=1))),
    "kind is 'LinearFourier'": (
        pair(kf.LinearFourier(8, 3.0), hat),
        pair(kf.LogFourier(8, 3.0), hat),
    ),
}


@modules
@pytest.mark.parametrize("message", OTHERS)
def test_other_features_are_refused(make, message):
    saved, other = OTHERS[message]
    with pytest.raises(RuntimeError, match=message):
        make(other).load_state_dict(make(saved).state_dict())
    with pytest.raises(RuntimeError, match=message):
        make(other).load_state_dict(make(saved).state_dict(), strict=False)


@modules
def test_another_domain_is_refused(make):
    encoding = pair(waves(), hat)
    state = make(encoding, domain=[(0, 1), (0, 2)]).state_dict()
    with pytest.raises(RuntimeError, match=r"domain\[1\]\[1\] is 2.0 .* 1.0 in the module"):
        make(encoding).load_state_dict(state)
    # the default domain is that of the unit interval
    make(encoding, domain=[(0, 1), (0, 1)]).load_state_dict(make(encoding).state_dict())


def test_other_directions_are_refused():
    one, other = (
        kf.Concatenated(hat, directions=[row], offsets=[0.0]) for row in ([0.5, 0.5], [1.0, 0.0])
    )
    with pytest.raises(RuntimeError, match="directions"):
        ConcatenatedLinear(other, 3).load_state_dict(ConcatenatedLinear(one, 3).state_dict())


@modules
def test_the_same_features_load_and_give_the_same_values(make, tmp_path):
    points = torch.rand(5, 2)
    saved, loaded = make(pair(waves(3), hat)), make(pair(waves(3), hat))
    torch.save(saved.state_dict(), tmp_path / "weights.pt")
    state = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    loaded.load_state_dict(state)
    torch.testing.assert_close(loaded(points), saved(points))
    torch.testing.assert_close(copy.deepcopy(saved)(points), saved(points))


@modules
def test_a_state_dict_without_a_description_loads(make):
    state = make(pair(waves(0), hat)).state_dict()
    old = {name: value for name, value in state.items() if not name.endswith("_extra_state")}
    assert len(old) == len(state) - 1
    result = make(pair(waves(1), hat)).load_state_dict(old)
    assert not result.missing_keys
    assert not result.unexpected_keys
    if len(old) > 1:  # other missing keys are still reported
        with pytest.raises(RuntimeError, match="Missing"):
            make(pair(waves(0), hat)).load_state_dict(dict([*old.items()][1:]))


@modules
def test_learned_values_travel(make):
    points = torch.rand(5, 2)
    for learned, saved, other in [
        ("width", kf.Gaussian(6, 0.1), kf.Gaussian(6, 0.3)),
        ("frequencies", waves(0), waves(1, 5.0)),
        ("frequencies", kf.Sine(6, 1.0), kf.Sine(6, 3.0)),
    ]:
        one, two = (make(pair(emb, hat), trainable=[learned]) for emb in (saved, other))
        if learned == "width":  # the hat learns its width too
            two = make(pair(other, kf.Triangle(6, 0.9)), trainable=[learned])
        two.load_state_dict(one.state_dict())
        torch.testing.assert_close(two(points), one(points))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_the_description_survives_a_cast(kind):
    state = Encode(pair(waves(0), hat)).state_dict()
    cast = {name: value.to(kind) for name, value in state.items()}
    Encode(pair(waves(0), hat)).load_state_dict(cast)
    with pytest.raises(RuntimeError, match="seed"):
        Encode(pair(waves(1), hat)).load_state_dict(cast)
    with pytest.raises(RuntimeError, match="no description"):
        Encode(pair(waves(0), hat)).load_state_dict({"_extra_state": torch.arange(9.0)})


def test_parts_of_a_network_are_named():
    network = torch.nn.Sequential(Encode(pair(waves(1), hat)), torch.nn.Linear(48, 2))
    other = torch.nn.Sequential(Encode(pair(waves(0), hat)), torch.nn.Linear(48, 2))
    with pytest.raises(RuntimeError, match=r"'0' .*'0\._extra_state'"):
        network.load_state_dict(other.state_dict())


def test_runs_resume_and_fields_are_saved_with_the_weights_alone(tmp_path):
    encoding, grid = pair(waves(0), hat), Grid.even((6, 5))
    values = torch.rand(6, 5, 1)
    path = tmp_path / "run.safetensors"
    train(CoordinateMLP(encoding, 1, 4, 1), (grid, values), epochs=2, checkpoint=path)
    again = train(
        CoordinateMLP(encoding, 1, 4, 1), (grid, values), epochs=2, checkpoint=path, resume=True
    )
    file = tmp_path / "network.field"
    again.field.save(file, dtype="float16")
    from kronfield.field import storage

    arrays, _ = storage.read(file)
    assert not any("_extra_state" in name for name in arrays)
    points = torch.rand(4, 2).numpy()
    assert abs(kf.load(file)(points) - again.field(points)).max() < 0.01
