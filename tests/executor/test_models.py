"""Models by name: ours, the operator's, and files; no file runs code."""

import pickle
import zipfile

import pytest

from executor.models import BUILT_IN, ModelError, Sources, batch_of, build, call

torch = pytest.importorskip("torch", reason="models need torch: pip install 'mainspring[executor]'")
from executor.packing import Packed  # noqa: E402

TINY = [name for name in BUILT_IN if name.endswith("tiny")]


def needs_transformers(name):
    if not name.startswith("mlp"):
        pytest.importorskip("transformers", reason="pip install 'mainspring[executor]'")


@pytest.mark.parametrize("name", TINY)
def test_a_built_in_model_is_the_same_anywhere_in_memory(name):
    needs_transformers(name)
    built = build(name)
    batch = batch_of(built, 2)
    with torch.inference_mode():
        expected = call(built, built.module, batch)
    assert all(out.shape[0] == 2 for out in expected.values())
    packed = Packed(built.module)
    size = packed.weights.numel()
    memory = torch.zeros(size + 512, dtype=torch.uint8)
    for first in (0, 256, 512):
        memory[first : first + size].copy_(packed.weights)
        module = packed.another()
        packed.bind(module, memory[first:])
        with torch.inference_mode():
            came = call(built, module, batch)
        assert all(torch.equal(came[name], expected[name]) for name in expected)
        memory.zero_()


def test_a_model_is_the_same_in_every_process():
    one, other = build("mlp-tiny"), build("mlp-tiny")
    assert torch.equal(Packed(one.module).weights, Packed(other.module).weights)


def test_weights_come_from_files_that_run_nothing(tmp_path):
    before = build("mlp-tiny").module.state_dict()
    state = {key: torch.full_like(value, 0.5) for key, value in before.items()}
    torch.save(state, tmp_path / "w.pt")
    files = [tmp_path / "w.pt"]
    try:
        from safetensors.torch import save_file
    except ImportError:
        pass
    else:
        save_file(state, tmp_path / "w.safetensors")
        files.append(tmp_path / "w.safetensors")
    for file in files:
        built = build("mlp-tiny", Sources(weights={"mlp-tiny": str(file)}))
        assert all((p == 0.5).all() for p in built.module.parameters())


class Evil:
    def __reduce__(self):
        return (print, ("it ran",))


def test_a_pickle_in_the_place_of_weights_does_not_run(tmp_path, capsys):
    (tmp_path / "w.pt").write_bytes(pickle.dumps(Evil()))
    torch.save({"x": Evil()}, tmp_path / "v.pt")
    for file in ("w.pt", "v.pt"):
        with pytest.raises(ModelError, match=f"--weights mlp-tiny=.*{file}"):
            build("mlp-tiny", Sources(weights={"mlp-tiny": str(tmp_path / file)}))
    assert "it ran" not in capsys.readouterr().out


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(x)

    file = tmp_path_factory.mktemp("exported") / "net.pt2"
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Net(), (torch.ones(2, 4),), dynamic_shapes={"x": {0: batch}})
    torch.export.save(program, file)
    return file, program


def test_an_exported_file_runs(exported):
    file, program = exported
    built = build("net", Sources({"net": str(file)}))
    x = torch.rand(3, 4)
    packed = Packed(built.module)
    module = packed.another()
    packed.bind(module, packed.weights)
    with torch.inference_mode():
        came = call(built, module, {"input": x})
    (out,) = came.values()
    assert torch.equal(out, program.module()(x))


def test_an_exported_file_with_pickles_in_it_does_not_run_them(exported, tmp_path, capsys):
    """Its objects are refused; its weights in pickles are read as weights only."""
    file, _ = exported
    objects = tmp_path / "objects.pt2"
    objects.write_bytes(file.read_bytes())
    with zipfile.ZipFile(objects, "a") as archive:
        archive.writestr("net/data/constants/custom_obj_0", pickle.dumps(Evil()))
    with pytest.raises(ModelError, match="pickled objects"):
        build("net", Sources({"net": str(objects)}))
    inputs = tmp_path / "inputs.pt2"
    torch.save({"x": Evil()}, tmp_path / "evil.pt")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(inputs, "w") as new:
        for part in old.namelist():
            evil = "sample_inputs" in part
            new.writestr(part, (tmp_path / "evil.pt").read_bytes() if evil else old.read(part))
        assert any("sample_inputs" in part for part in old.namelist())
    with pytest.raises(ModelError):
        build("net", Sources({"net": str(inputs)}))
    assert "it ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("return 7", "returned int; expected"),
        ("return torch.nn.Linear(2, 2)", "returned Linear; expected"),
        ("return torch.nn.Linear(2, 2), {'input': 3}", "something that is no tensor"),
        ("raise ValueError('no such luck')", "ValueError: no such luck"),
    ],
)
def test_what_is_no_model_is_told_in_one_line(tmp_path, code, told):
    file = tmp_path / "m.py"
    file.write_text(f"import torch\ndef make():\n    {code}\n")
    with pytest.raises(ModelError, match=told) as error:
        build("m", Sources({"m": f"{file}:make"}))
    assert "\n" not in str(error.value)


def test_an_unknown_model_is_told_with_the_way_out():
    with pytest.raises(ModelError, match=r"no model nope; expected one of spin, .*--model nope="):
        build("nope")
