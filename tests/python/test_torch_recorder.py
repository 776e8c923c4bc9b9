"""ballast.calibration.Recorder attached to PyTorch modules, against NumPy. Runs where PyTorch is installed."""

import re
from pathlib import Path

import ballast
import numpy as np
import pytest
import torch
from ballast.calibration import Recorder
from torch import nn

REPO = Path(__file__).resolve().parents[2]


def statistics(recorder, path):
    recorder.save(path)
    with ballast.open(path) as model:
        return {name: tensor.numpy(copy=True) for name, tensor in model.items()}


def same(found, expected):
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 4, bias=False)])
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(self.blocks[1](torch.relu(self.blocks[0](x))))


@pytest.fixture
def net():
    torch.manual_seed(3)
    return Net()


def by_numpy(net, x):
    """The inputs and outputs of both layers, in float64."""
    weights = {name: tensor.detach().double().numpy() for name, tensor in net.state_dict().items()}
    first = x @ weights["blocks.0.weight"].T + weights["blocks.0.bias"]
    hidden = np.maximum(first, 0)
    return [("blocks.0.weight", x, first), ("blocks.1.weight", hidden, hidden @ weights["blocks.1.weight"].T)]


class TestLinear:
    @pytest.mark.parametrize("hessian", [False, True])
    @pytest.mark.parametrize("outputs", [False, True])
    def test_statistics_are_those_of_numpy(self, net, tmp_path, hessian, outputs):
        attached, expected = Recorder(hessian), Recorder(hessian)
        rng = np.random.default_rng(1)
        with attached.attach(net, outputs=outputs) as attachment:
            for _ in range(3):
                x = rng.normal(0, 1, (2, 5, 6))
                net(torch.from_numpy(x).float())
                for name, inputs, made in by_numpy(net, x):
                    expected.add(name, inputs, y=made if outputs else None)
        assert attachment.weights == ["blocks.0.weight", "blocks.1.weight"]
        same(statistics(attached, tmp_path / "a"), statistics(expected, tmp_path / "b"))

    def test_timesteps_are_those_that_were_set(self, net, tmp_path):
        attached, expected = Recorder(), Recorder()
        rng = np.random.default_rng(2)
        with attached.attach(net):
            for t in torch.linspace(1, 0, 4):
                attached.timestep = t
                x = rng.normal(0, 1, (5, 6))
                net(torch.from_numpy(x).float())
                for name, inputs, _ in by_numpy(net, x):
                    expected.add(name, inputs, float(t))
        same(statistics(attached, tmp_path / "a"), statistics(expected, tmp_path / "b"))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_other_floats_are_recorded_exactly(self, tmp_path, dtype):
        layer, recorder = nn.Linear(4, 2).to(dtype), Recorder()
        x = torch.randn(7, 4).to(dtype)
        with recorder.attach(layer):
            layer(x)
        found = statistics(recorder, tmp_path / "a")
        np.testing.assert_array_equal(found["weight.x_mean"], x.double().mean(0).float().numpy())

    def test_gradients_still_flow(self, net):
        recorder = Recorder()
        with recorder.attach(net):
            net(torch.randn(3, 6)).sum().backward()
        assert net.blocks[0].weight.grad is not None

    def test_names_have_the_prefix(self, net):
        with Recorder().attach(net, prefix="model.") as attachment:
            assert attachment.weights == ["model.blocks.0.weight", "model.blocks.1.weight"]

    def test_recording_ends_with_the_block(self, net, tmp_path):
        recorder = Recorder()
        attachment = recorder.attach(net)
        net(torch.randn(3, 6))
        attachment.remove()
        attachment.remove()
        net(torch.randn(3, 6))
        assert statistics(recorder, tmp_path / "a")["blocks.0.weight.count"].tolist() == [3]
        assert repr(attachment) == "Attachment(2 weights, removed)" and repr(recorder) == "Recorder(2 weights, 0 timesteps)"


CONVOLUTIONS = {
    "1d": (lambda: nn.Conv1d(3, 4, 5), (2, 3, 11)),
    "1d, same": (lambda: nn.Conv1d(3, 4, 4, padding="same", dilation=2), (2, 3, 11)),
    "2d": (lambda: nn.Conv2d(3, 4, (2, 3)), (2, 3, 7, 8)),
    "2d, strided and padded": (lambda: nn.Conv2d(3, 4, 3, stride=(2, 1), padding=(1, 2), dilation=(1, 2)), (2, 3, 7, 8)),
    "2d, reflected": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 7, 8)),
    "2d, without a batch": (lambda: nn.Conv2d(3, 4, 3), (3, 7, 8)),
    "3d": (lambda: nn.Conv3d(2, 3, 2, stride=2, padding=1), (2, 2, 5, 6, 4)),
}


class TestConvolutions:
    @pytest.mark.parametrize("kind", CONVOLUTIONS)
    def test_inputs_make_the_outputs(self, kind, tmp_path):
        """The recorded inputs are unfolded in the order of the weight: their products with it are the outputs."""
        torch.manual_seed(1)
        layer, shape = CONVOLUTIONS[kind][0](), CONVOLUTIONS[kind][1]
        seen = []
        recorder = Recorder(hessian=True)
        add = recorder.add
        recorder.add = lambda name, x, timestep, y: (seen.append((x, y)), add(name, x, timestep, y))
        with recorder.attach(layer, outputs=True):
            layer(torch.randn(shape))
        ((x, y),) = seen
        made = x @ layer.weight.detach().flatten(1).T + layer.bias.detach()
        torch.testing.assert_close(made.reshape(-1, made.shape[-1]), y.reshape(-1, y.shape[-1]))
        rows = x.reshape(-1, x.shape[-1]).double().numpy()
        found = statistics(recorder, tmp_path / "a")
        np.testing.assert_allclose(found["weight.hessian"], rows.T @ rows / len(rows), rtol=1e-5, atol=1e-6)

    def test_with_groups_are_not_recorded(self):
        grouped = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.ConvTranspose1d(4, 4, 3), nn.Embedding(3, 2))
        with pytest.raises(ballast.ArgumentError, match="Sequential has no linear or convolutional layer"):
            Recorder().attach(grouped)


def test_wrong_modules_are_refused():
    with pytest.raises(TypeError, match="module must be a torch.nn.Module, not dict"):
        Recorder().attach({})


def test_a_layer_called_by_keyword_is_an_error():
    layer, recorder = nn.Linear(2, 2), Recorder()
    with recorder.attach(layer), pytest.raises(ballast.ArgumentError, match="weight: the layer was called without a positional argument"):
        layer(input=torch.ones(1, 2))


def test_tensors_may_be_added_directly(tmp_path):
    recorder = Recorder()
    recorder.add("w", torch.ones(3, 2, dtype=torch.bfloat16, requires_grad=True), torch.tensor(7))
    assert statistics(recorder, tmp_path / "a")["w.count"].tolist() == [3]
    with pytest.raises(ballast.ArgumentError, match="w: x must have floats, not int64"):
        recorder.add("w", torch.ones(3, 2, dtype=torch.int64), 8)


def test_sample_of_the_guide_runs(net, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sample, add = re.findall(r"^```py\n(.*?)^```$", (REPO / "docs/calibration.md").read_text(), re.MULTILINE | re.DOTALL)
    names = {"model": net, "batches": [torch.randn(3, 6)] * 2, "x": torch.ones(1, 2), "timestep": None}
    exec(compile(sample, "<sample>", "exec"), names)
    assert ballast.open("statistics.safetensors")["blocks.0.weight.count"].numpy().tolist() == [6]
    exec(compile(add, "<sample>", "exec"), names)


def test_statistics_of_a_module_improve_its_quantization(tmp_path):
    torch.manual_seed(5)
    module = nn.Linear(64, 32, bias=False)
    scale = torch.where(torch.arange(64) % 16 == 0, 10.0, 0.5)
    recorder = Recorder()
    with recorder.attach(module):
        module(torch.randn(200, 64) * scale)
    recorder.save(tmp_path / "s.safetensors")
    settings = {"bits": 3, "group_size": 32, "format": "mlx", "min_accuracy": 0, "sync": False}
    x = (torch.randn(100, 64) * scale).double().numpy()

    def error(**options):
        ballast.quantize(module.state_dict(), tmp_path / "q", **settings, **options)
        with ballast.open(tmp_path / "q", decode=True) as model:
            decoded = model["weight"].to("f64")
        weight = module.weight.detach().double().numpy()
        return np.linalg.norm(x @ (decoded - weight).T) / np.linalg.norm(x @ weight.T)

    assert error(calibration=tmp_path / "s.safetensors") < 0.9 * error()
