"""Weights of one ViT in all supported layouts."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from camp.core.errors import CampError
from camp.nn.backbones.vit import SHAPES, VitShape, random_state
from camp.nn.backbones.weights import infer_vit_shape, load_weights

DINO = VitShape(dim=64, patch=4, blocks=2, grid=3)
DINOV2 = VitShape(dim=64, patch=4, blocks=2, layer_scale=True, grid=3)


def official(shape: VitShape) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(tensor.shape, generator=generator)
        for name, tensor in random_state(shape, generator).items()
    }


def hugging_face(state: dict[str, Tensor], shape: VitShape) -> dict[str, Tensor]:
    """The same tensors as `transformers` names them: ViTModel without layer scale, Dinov2Model with it."""
    theirs = {
        "embeddings.cls_token": state["cls_token"],
        "embeddings.position_embeddings": state["pos_embed"],
        "embeddings.patch_embeddings.projection.weight": state["patch_embed.proj.weight"],
        "embeddings.patch_embeddings.projection.bias": state["patch_embed.proj.bias"],
        "layernorm.weight": state["norm.weight"],
        "layernorm.bias": state["norm.bias"],
    }
    v2 = shape.layer_scale
    for index in range(shape.blocks):
        for part in ("weight", "bias"):
            old, new = f"blocks.{index}", f"encoder.layer.{index}"
            for name, rows in zip(("query", "key", "value"), state[f"{old}.attn.qkv.{part}"].chunk(3)):
                theirs[f"{new}.attention.attention.{name}.{part}"] = rows.contiguous()
            theirs[f"{new}.attention.output.dense.{part}"] = state[f"{old}.attn.proj.{part}"]
            theirs[f"{new}.{'norm1' if v2 else 'layernorm_before'}.{part}"] = state[f"{old}.norm1.{part}"]
            theirs[f"{new}.{'norm2' if v2 else 'layernorm_after'}.{part}"] = state[f"{old}.norm2.{part}"]
            theirs[f"{new}.{'mlp.fc1' if v2 else 'intermediate.dense'}.{part}"] = state[
                f"{old}.mlp.fc1.{part}"
            ]
            theirs[f"{new}.{'mlp.fc2' if v2 else 'output.dense'}.{part}"] = state[f"{old}.mlp.fc2.{part}"]
        if v2:
            theirs[f"{new}.layer_scale1.lambda1"] = state[f"{old}.ls1.gamma"]
            theirs[f"{new}.layer_scale2.lambda1"] = state[f"{old}.ls2.gamma"]
    if v2:
        theirs["embeddings.mask_token"] = torch.zeros(1, shape.dim)
    else:
        theirs["pooler.dense.weight"] = torch.zeros(shape.dim, shape.dim)
        theirs["pooler.dense.bias"] = torch.zeros(shape.dim)
    return theirs


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("shape", [DINO, DINOV2])
def test_official_files(tmp_path: Path, shape: VitShape) -> None:
    state = official(shape)
    torch.save(state | ({"mask_token": torch.zeros(1, 64)} if shape.layer_scale else {}), tmp_path / "a.pth")
    save_file(state, tmp_path / "a.safetensors")
    for name in ("a.pth", "a.safetensors"):
        found = load_weights(str(tmp_path / name))
        assert_same(found, state)
        assert infer_vit_shape(found, name) == shape


@pytest.mark.parametrize("wrapper", ["teacher", "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["module.", "backbone.", "module.backbone."])
def test_training_checkpoints(tmp_path: Path, wrapper: str, prefix: str) -> None:
    state = official(DINO)
    inside = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    inside |= {f"{prefix.removesuffix('backbone.')}head.mlp.0.weight": torch.zeros(2, 2)}
    torch.save({wrapper: inside, "epoch": 7, "loss": [0.1]}, tmp_path / "run.pth")
    assert_same(load_weights(str(tmp_path / "run.pth")), state)


@pytest.mark.parametrize("shape", [DINO, DINOV2])
@pytest.mark.parametrize("prefix", ["", "vit.", "dinov2."])
def test_hugging_face_folders(tmp_path: Path, shape: VitShape, prefix: str) -> None:
    state = official(shape)
    theirs = {f"{prefix}{name}": tensor for name, tensor in hugging_face(state, shape).items()}
    save_file(theirs, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    found = load_weights(str(tmp_path))
    assert_same(found, state)
    assert infer_vit_shape(found, "folder") == shape


def test_hugging_face_folder_with_an_old_file(tmp_path: Path) -> None:
    torch.save(hugging_face(official(DINO), DINO), tmp_path / "pytorch_model.bin")
    assert_same(load_weights(str(tmp_path)), official(DINO))


def test_half_precision_becomes_single(tmp_path: Path) -> None:
    save_file({name: tensor.half() for name, tensor in official(DINO).items()}, tmp_path / "half.safetensors")
    assert {tensor.dtype for tensor in load_weights(str(tmp_path / "half.safetensors")).values()} == {
        torch.float32
    }


@pytest.mark.parametrize("name", list(SHAPES))
def test_known_shapes_are_inferred_from_their_tensors(name: str) -> None:
    with torch.device("meta"):
        state = {key: torch.empty(size) for key, size in SHAPES[name].sizes().items()}
    shape = infer_vit_shape(state, "file")
    assert (shape, shape.name) == (SHAPES[name], name)


def test_register_tokens_are_refused() -> None:
    with pytest.raises(CampError, match="register tokens"):
        infer_vit_shape(official(DINOV2) | {"register_tokens": torch.zeros(1, 4, 64)}, "file")


def test_missing_and_unexpected_tensors_are_named() -> None:
    state = official(DINO)
    state["blocks.1.mlp.w12.weight"] = state.pop("blocks.1.mlp.fc1.weight")
    with pytest.raises(CampError) as caught:
        infer_vit_shape(state, "my.pth")
    assert str(caught.value) == (
        "my.pth does not fit vit-64d4: it lacks blocks.1.mlp.fc1.weight and has unexpected blocks.1.mlp.w12.weight."
    )


def test_tensors_of_another_size_are_named() -> None:
    state = official(DINO) | {"norm.bias": torch.zeros(3)}
    with pytest.raises(CampError, match=r"has another size of norm\.bias"):
        infer_vit_shape(state, "file")


def test_other_networks_are_refused() -> None:
    with pytest.raises(CampError, match="does not hold a ViT"):
        infer_vit_shape({"fc.weight": torch.zeros(2, 2)}, "file")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    torch.save({"model": Evil()}, tmp_path / "evil.pth")
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil(), protocol=2))
    for name in ("evil.pth", "evil.pt"):
        with pytest.raises(CampError, match="was not loaded, as that could run any code"):
            load_weights(str(tmp_path / name))


@pytest.mark.parametrize("name", ["empty.pth", "empty.safetensors", "torn.pth", "torn.safetensors"])
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    torch.save(official(DINO), tmp_path / "torn.pth")
    save_file(official(DINO), tmp_path / "torn.safetensors")
    whole = (tmp_path / name).read_bytes() if "torn" in name else b""
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CampError):
        load_weights(str(tmp_path / name))


def test_a_file_that_holds_a_list_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(CampError, match="holds a list"):
        load_weights(str(tmp_path / "list.pth"))


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(CampError, match="There is no file"):
        load_weights(str(tmp_path / "gone.pth"))
    with pytest.raises(CampError, match="There is no file vits16"):
        load_weights("vits16")
    with pytest.raises(CampError, match="holds 0 files of weights"):
        load_weights(str(tmp_path))


def test_the_error_without_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CampError, match="hf download facebook/dino-vits16 --local-dir FOLDER"):
        load_weights("facebook/dino-vits16")


def with_names(**changed: Tensor) -> dict[str, Tensor]:
    """Return the weights of a ViT with other tensors, by names with __ for dots."""
    return official(DINO) | {name.replace("__", "."): tensor for name, tensor in changed.items()}


def inside_itself() -> dict[str, object]:
    content: dict[str, object] = {"epoch": 3}
    content["teacher"] = content
    return content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (with_names(pos_embed=torch.zeros(1, 0, 64)), "with 0 positions; expected blocks"),
        (with_names(pos_embed=torch.zeros(1, 1, 64)), "with 1 positions; expected blocks"),
        ({1: torch.zeros(3), ("a", "b"): torch.zeros(3)}, "does not hold a ViT"),
        (inside_itself(), "does not hold a ViT"),
        (with_names(blocks__99999999__attn__qkv__weight=torch.zeros(1)), "it has unexpected blocks.99999999.attn"),
        (with_names(blocks__999__norm1__weight=torch.zeros(1)), "it lacks blocks.2.norm1"),
        (with_names(patch_embed__proj__weight=torch.zeros(0, 3, 0, 0)), "is a ViT of 2 blocks and 0 dimensions"),
        (with_names(norm__bias=torch.zeros(64, dtype=torch.int64)), "has no decimal numbers in norm.bias"),
        (with_names(norm__bias=torch.full((64,), torch.nan)), "holds numbers in norm.bias that are not finite"),
        (with_names(norm__bias=torch.zeros(64).to_sparse()), "it lacks norm.bias"),
        (with_names(norm__bias=torch.zeros(64, device="meta")), "it lacks norm.bias"),
        (
            with_names(blocks__0__attn__query__bias=torch.tensor(1.0), blocks__0__attn__key__bias=torch.tensor(1.0))
            | {"blocks.0.attn.value.bias": torch.tensor(1.0)},
            "it has unexpected blocks.0.attn.query.bias",
        ),
    ],
)  # fmt: skip
def test_files_that_no_network_has_written(tmp_path: Path, content: dict[object, object], said: str) -> None:
    file = tmp_path / "w.pth"
    torch.save(content, file)
    with pytest.raises(CampError) as caught:
        infer_vit_shape(load_weights(str(file)), "w.pth")
    assert said in str(caught.value)
