"""Load pretrained weights and convert them to the tensor names of the official DINO checkpoints.

Nothing is unpickled: files are read with safetensors, or with torch's loader restricted to tensors.
"""

import math
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from camp.core.errors import CampError
from camp.core.files import expand_user
from camp.nn.backbones.vit import HEAD_DIM, VitShape

State = dict[str, Tensor]

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
FILES_OF_A_FOLDER = ("model.safetensors", "pytorch_model.bin")
"""File names of Hugging Face, in the order in which they are tried."""
WRAPPERS = ("teacher", "state_dict", "model")
"""Keys of the network in training checkpoints."""
PREFIXES = ("module.", "backbone.", "vit.", "dinov2.")
UNUSED = re.compile(r"(mask_token|embeddings\.mask_token|pooler\..*|head\..*|classifier\..*|dino_head\..*)$")
"""Tensors that a feature extractor does not use."""
MAX_WRAPPERS = 8
"""Depth to which checkpoints may be nested."""

HUGGING_FACE_NAMES = (
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.register_tokens$", "register_tokens"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^layernorm\.", "norm."),
    (r"^encoder\.layer\.(\d+)\.", r"blocks.\1."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.attention\.(query|key|value)\.", r".attn.\1."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
)


def load_weights(source: str) -> State:
    """Load tensors from a file, a folder or a Hugging Face name, with official names, as float32."""
    state = to_official_names(unwrap(read_tensors(find_file(source), source)))
    for name, tensor in state.items():
        if tensor.is_floating_point():
            state[name] = tensor.float()
            if not bool(state[name].isfinite().all()):
                raise CampError(f"{source} holds numbers in {name} that are not finite; take another file.")
    return state


def find_file(source: str) -> Path:
    """Return the file of `source`; download it if it is a name on the Hugging Face hub."""
    path = expand_user(source)
    if path.is_dir():
        for name in FILES_OF_A_FOLDER:
            if (path / name).is_file():
                return path / name
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        if len(files) == 1:
            return files[0]
        raise CampError(
            f"The folder {source} holds {len(files)} files of weights and none named "
            f"{' or '.join(FILES_OF_A_FOLDER)}; name the file itself."
        )
    if path.is_file():
        return path
    if path.suffix in SUFFIXES or not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        raise CampError(
            f"There is no file {source}; weights are a {', '.join(SUFFIXES)} file, a folder, "
            "or a Hugging Face name such as facebook/dino-vits16."
        )
    return download_from_hub(source)


def download_from_hub(name: str) -> Path:
    """Download the weights called `name`, or find them in the cache of the hub."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    for file in FILES_OF_A_FOLDER:
        try:
            return Path(hf_hub_download(name, file))
        except LocalEntryNotFoundError as error:
            raise _unreachable(name, "the hub cannot be reached") from error
        except EntryNotFoundError:
            continue
        except Exception as error:  # the client raises its own errors, those of its HTTP library and OSError
            raise _unreachable(name, type(error).__name__) from error
    raise CampError(f"{name} on the Hugging Face hub holds neither {' nor '.join(FILES_OF_A_FOLDER)}.")


def _unreachable(name: str, reason: str) -> CampError:
    return CampError(
        f"Could not get the weights {name} from the Hugging Face hub ({reason}); on a machine with network run "
        f"`hf download {name} --local-dir FOLDER`, bring the folder here and pass it as the weights."
    )


def read_tensors(path: Path, source: str) -> dict[str, Any]:
    """Read a file of weights; a damaged file, or one with other objects than tensors, is refused."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CampError(
            f"{source} holds Python objects besides tensors and was not loaded, as that could run any code; "
            "save its state_dict alone, best as safetensors."
        ) from error
    except Exception as error:
        # Damaged files make the unpickler raise nearly every exception; for a file of another kind it is a KeyError
        # with the first unknown byte.
        reason = ["it holds no tensors"] if isinstance(error, KeyError) else str(error).strip().splitlines()
        raise CampError(
            f"Could not read the weights {source}: {reason[0] if reason else 'it is empty'}."
        ) from error
    if not isinstance(content, dict):
        raise CampError(
            f"{source} holds a {type(content).__name__}; weights are a dictionary of tensors by name."
        )
    return content


def unwrap(content: dict[str, Any]) -> State:
    """Return the tensors of the network in a training checkpoint, without prefixes.

    >>> weight = torch.zeros(1)
    >>> list(unwrap({"teacher": {"module.backbone.norm.weight": weight}, "epoch": 3}))
    ['norm.weight']
    """
    for _ in range(MAX_WRAPPERS):  # a dictionary may hold itself
        inner = next((content[name] for name in WRAPPERS if isinstance(content.get(name), dict)), None)
        content = content if inner is None else inner
    state = {name: value for name, value in content.items() if isinstance(name, str) and _is_plain(value)}
    for prefix in PREFIXES * 2:  # they nest: module.backbone.
        inside = {
            name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
        }
        state = inside or state  # drops the head, which lies beside the backbone
    return state


def _is_plain(value: object) -> bool:
    """Return whether `value` is a tensor with all its numbers in memory."""
    return isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"


def to_official_names(state: State) -> State:
    """Rename Hugging Face tensors, concatenate queries, keys and values, and drop unused tensors."""
    renamed: State = {}
    for name, tensor in state.items():
        if UNUSED.match(name):
            continue
        for pattern, replacement in HUGGING_FACE_NAMES:
            name = re.sub(pattern, replacement, name)
        renamed[name] = tensor
    for name in [name for name in renamed if re.search(r"\.attn\.query\.(weight|bias)$", name)]:
        parts = [name.replace(".query.", f".{part}.") for part in ("query", "key", "value")]
        sizes = {renamed[part].shape for part in parts if part in renamed}
        if all(part in renamed for part in parts) and len(sizes) == 1 and renamed[name].dim():
            renamed[name.replace(".query.", ".qkv.")] = torch.cat([renamed.pop(part) for part in parts])
    return renamed


def infer_vit_shape(state: State, source: str) -> VitShape:
    """Infer the architecture of a DINO or DINOv2 ViT from its tensors; other networks are refused."""
    if "register_tokens" in state:
        raise CampError(
            f"{source} is a ViT with register tokens, which are not supported; "
            "take the checkpoint without registers."
        )
    kernel, positions = state.get("patch_embed.proj.weight"), state.get("pos_embed")
    if kernel is None or positions is None or kernel.dim() != 4 or positions.dim() != 3:
        raise CampError(f"{source} does not hold a ViT: patch_embed.proj.weight and pos_embed are missing.")
    # Longer numbers are those of tensors that no ViT has.
    numbers = {int(name.split(".")[1]) for name in state if re.match(r"blocks\.[0-9]{1,3}\.", name)}
    shape = VitShape(
        dim=kernel.shape[0],
        patch=kernel.shape[2],
        blocks=max(numbers, default=-1) + 1,
        layer_scale="blocks.0.ls1.gamma" in state,
        grid=math.isqrt(max(positions.shape[1] - 1, 0)),
    )
    is_empty = not (shape.dim and shape.patch and shape.blocks and shape.grid)
    if is_empty or shape.dim % HEAD_DIM or 1 + shape.grid**2 != positions.shape[1]:
        raise CampError(
            f"{source} is a ViT of {shape.blocks} blocks and {shape.dim} dimensions with {positions.shape[1]} positions; "
            f"expected blocks, a multiple of {HEAD_DIM} dimensions, and a class token beside a square grid."
        )
    check_names(state, shape.sizes(), source, shape.name)
    return shape


def check_names(state: State, expected: dict[str, tuple[int, ...]], source: str, name: str) -> None:
    """Raise an error if tensors are missing, unexpected or of another shape than in `expected`."""
    faults = {
        "lacks": [key for key in expected if key not in state],
        "has unexpected": [key for key in state if key not in expected],
        "has another size of": [k for k in expected if k in state and state[k].shape != expected[k]],
        "has no decimal numbers in": [k for k in expected if k in state and not state[k].is_floating_point()],
    }
    found = [f"{verb} {_abbreviate(keys)}" for verb, keys in faults.items() if keys]
    if found:
        raise CampError(f"{source} does not fit {name}: it {' and '.join(found)}.")


def _abbreviate(names: list[str]) -> str:
    """List the first three names.

    >>> _abbreviate(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
