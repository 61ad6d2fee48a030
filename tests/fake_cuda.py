"""A CUDA device for machines without one: torch's rules for devices, and the numbers of the CPU.

A `CudaTensor` says that it is on `cuda:0` and holds its numbers on the CPU. Every operation that takes or makes one,
in the forward and in the backward pass and in every thread, is first run by `FakeTensorMode` on fake tensors of the
devices that the arguments claim. That raises the errors of a mixture of devices and decides where the results are.
Then the numbers are computed on the CPU, so that code which depends on them (clustering, boolean masks, `item()`)
runs as well. Rules on which `FakeTensorMode` is less strict than CUDA are checked here: see `_check_more`.

FakeTensorMode alone does not do: it has no numbers, and a build of torch without CUDA has no autograd for its tensors
on `cuda`. To the C++ part of torch a `CudaTensor` is therefore on the device "meta", with the dispatch keys of CUDA.

Where the CPU would have to wait for a GPU is recorded in `FakeCuda.waits`.
"""

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_flatten, tree_unflatten

import camp

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
_COPIES = (aten.copy_.default, aten._to_copy.default)
_INDEXED = ("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_")
"""Operations whose indices may be on the CPU while the tensor is on the GPU."""
_CPU_SCALARS = ("where", "masked_fill", "masked_fill_", "fill", "fill_")
"""Operations besides those that go element by element that take a tensor of no dimensions from the CPU."""
_RESIZING = (
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.eye.default,
    aten.eye.m,
    aten.linspace.default,
    aten.randperm.default,
    aten.randperm.generator,
)
"""Operations that torch divides into making an empty tensor and filling it, with another shape."""
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_SOURCES = Path(camp.__file__).parent
_lock = threading.RLock()


@dataclass
class FakeCuda:
    """What happened on the device."""

    mode: FakeTensorMode = field(default_factory=lambda: FakeTensorMode(allow_fallback_kernels=False))
    operations: int = 0
    """Number of operations on the device."""
    uploads: list[str] = field(default_factory=list)
    """Functions of CAMP that copied to the device from page-locked memory, for which the CPU does not wait."""
    waits: list[str] = field(default_factory=list)
    """Functions of CAMP in which the main thread waited until the device had done all that it was given."""

    def forget(self) -> None:
        """Begin to record anew."""
        self.operations = 0
        self.uploads.clear()
        self.waits.clear()

    def wait(self) -> None:
        """Record that the CPU waits for the device."""
        if threading.current_thread() is threading.main_thread():
            self.waits.append(_function_of_camp())


class _State(threading.local):
    checking = False
    """Whether FakeTensorMode runs an operation."""


_state = _State()
_devices: list[FakeCuda] = []
"""The device, while there is one."""


class CudaTensor(Tensor):
    """A tensor that claims to be on `cuda:0`; its numbers are `value`, on the CPU."""

    value: Tensor

    @staticmethod
    def __new__(cls, value: Tensor) -> "CudaTensor":
        outside = _twin(value)
        made: CudaTensor = Tensor._make_subclass(cls, outside, False, device_for_backend_keys=CUDA)
        made.value = value
        return made

    def __init__(self, value: Tensor) -> None:
        super().__init__()

    device = property(lambda self: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]
    is_meta = property(lambda self: False)  # type: ignore[assignment]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["value"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> Tensor:
        return CudaTensor(inner["value"])

    def __repr__(self) -> str:  # type: ignore[override]
        return f"CudaTensor({self.value})"

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        copied = CudaTensor(self.value.clone()).requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copied._is_param = True  # type: ignore[attr-defined]
        memo[id(self)] = copied
        return copied

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Correct functions whose C++ part would see the device "meta"."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func is Tensor.numpy or func is Tensor.__array__:
                raise TypeError(
                    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
                    "memory first."
                )
            if func is Tensor.tolist:
                return args[0].cpu().tolist()
            if func is Tensor.to and len(args) > 1 and isinstance(args[1], Tensor):
                return args[0].to(args[1].device, args[1].dtype, *args[2:], **kwargs)
            if func is Tensor.type_as:
                return args[0].to(args[1].device, args[1].dtype)
            if func is torch._C._nn.one_hot:
                categories, count = args
                ones = torch.ones_like(categories)[..., None]
                return categories.new_zeros(*categories.shape, count).scatter_(
                    -1, categories[..., None], ones
                )
            if func is Tensor.__setitem__ and not isinstance(args[0], CudaTensor):
                value = args[2]
                if isinstance(value, CudaTensor) and value.ndim == 0:  # a number is copied, as CUDA does
                    args = (*args[:2], value.cpu())
            elif func is Tensor.__setitem__ and not (isinstance(args[2], Tensor) and args[2].ndim):
                args = (*args[:2], torch.as_tensor(args[2], dtype=args[0].dtype).to(CUDA, non_blocking=True))
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on tensors of both devices, or one that makes a tensor on the GPU."""
    if func is aten._fused_sdp_choice.default:
        return 0  # attention by plain operations
    if not _devices:
        raise RuntimeError(f"{func} is called with a tensor of a fake CUDA device that is gone")
    cuda = _devices[-1]
    with _lock:
        given, shape = tree_flatten((args, kwargs))
        _check_more(func, args, kwargs, [x for x in given if isinstance(x, Tensor)])
        places = _places(cuda.mode, func, given, shape)
        _record(cuda, func, args, kwargs)
        values = [_value(x) for x in given]
        answer = func(*(unflat := tree_unflatten(values, shape))[0], **unflat[1])
        results, result_shape = tree_flatten(answer)
        if places is None:
            places = [CUDA] * len(results)
        same = {id(value): x for value, x in zip(values, given) if isinstance(x, Tensor)}
        for x in given:
            if isinstance(x, CudaTensor) and x.shape != x.value.shape:  # changed in place
                layout = x.value.shape, x.value.stride(), x.value.storage_offset()
                aten.as_strided_.default.redispatch(_META, x, *layout)
        wrapped = [
            same.get(id(x), x if place.type == "cpu" else CudaTensor(x)) if isinstance(x, Tensor) else x
            for x, place in zip(results, places)
        ]
    return tree_unflatten(wrapped, result_shape)


def _places(mode: FakeTensorMode, func: Any, given: list[Any], shape: Any) -> list[torch.device] | None:
    """Return where FakeTensorMode puts each result; None where that depends on the numbers."""

    def fake(x: Any) -> Any:
        if isinstance(x, Tensor):
            return FakeTensor(mode, _twin(_value(x)), x.device)
        if isinstance(x, torch.Generator):
            return None
        return CUDA if isinstance(x, torch.device) and x.type in ("cuda", "meta") else x

    args, kwargs = tree_unflatten([fake(x) for x in given], shape)
    _state.checking = True
    try:
        with mode:
            answer = func(*args, **kwargs)
    except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
        return None
    finally:
        _state.checking = False
    return [x.device if isinstance(x, Tensor) else CPU for x in tree_flatten(answer)[0]]


def _check_more(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> None:
    """Raise the errors of CUDA that FakeTensorMode does not raise."""
    if any(x.device.type == "meta" for x in tensors):
        raise AssertionError(f"{func} gets a tensor without numbers: the fake device does not cover it")
    draw = kwargs.get("generator")
    if draw is not None and draw.device.type != "cuda":
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    if func in _COPIES or not any(isinstance(x, CudaTensor) for x in tensors):
        return
    name = _name(func)
    if name in _INDEXED:
        if not isinstance(args[0], CudaTensor):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        tensors = [args[0], *args[2:3]]
    arguments = func._schema.arguments
    by_name = dict(zip((argument.name for argument in arguments), args)) | kwargs
    written = [by_name.get(x.name) for x in arguments if x.alias_info is not None and x.alias_info.is_write]
    scalars = torch.Tag.pointwise in func.tags or name in (*_CPU_SCALARS, *_INDEXED)
    for x in tensors:
        by_number = scalars and x.ndim == 0 and not any(x is target for target in written)
        if not isinstance(x, CudaTensor) and not by_number:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({func})"
            )


def _record(cuda: FakeCuda, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record copies to the device, and whatever has to wait for it."""
    cuda.operations += 1
    if func is aten.copy_.default:
        target, source, *asynchronous = args
        if not isinstance(target, CudaTensor):
            cuda.wait()
        elif not isinstance(source, CudaTensor) and asynchronous == [True] and hasattr(source, "pinned"):
            cuda.uploads.append(_function_of_camp())
        elif not isinstance(source, CudaTensor) and source.ndim:
            cuda.wait()
    elif func is aten._to_copy.default:
        if kwargs.get("device", CUDA).type == "cpu":
            cuda.wait()
    elif _name(func) in _INDEXED:
        indices = [x for x in args[1] if x is not None]
        if any(x.dtype is torch.bool or not isinstance(x, CudaTensor) for x in indices):
            cuda.wait()
    elif torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        cuda.wait()


def _name(func: Any) -> str:
    """Return the name of an operation without its overload."""
    name: str = func._schema.name
    return name.removeprefix("aten::")


def _value(x: Any) -> Any:
    """Return an argument as the CPU takes it."""
    if isinstance(x, CudaTensor):
        return x.value
    return CPU if isinstance(x, torch.device) and x.type in ("cuda", "meta") else x


def _twin(value: Tensor) -> Tensor:
    """Return a tensor without numbers that lies in memory as `value` does."""
    count = value.untyped_storage().nbytes() // value.element_size()
    whole = torch.empty(count, dtype=value.dtype, device="meta")
    return whole.as_strided(value.shape, value.stride(), value.storage_offset())


def _function_of_camp() -> str:
    """Return the innermost function of CAMP that is being run, as "methods/trainer.py Trainer.epoch"."""
    frame = sys._getframe()
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_SOURCES) and path.name != "devices.py":
            name = frame.f_code.co_qualname.partition(".<locals>")[0]
            return f"{path.relative_to(_SOURCES)} {name}"
        frame = frame.f_back
    return "outside of CAMP"


@contextlib.contextmanager
def fake_cuda() -> Iterator[FakeCuda]:
    """Give this process a CUDA device as long as the `with` block runs; skip the test where torch has CUDA."""
    if torch.backends.cuda.is_built():
        pytest.skip("torch is built with CUDA, whose device cannot be replaced")
    register_guard()
    every, own = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(lambda func, *args, **kwargs: _run(func, args, kwargs), "CUDA")
    for func in _RESIZING:
        own.impl(func._name, functools.partial(_made, func), "CUDA")
    for name in ("zeros", "ones", "full", "scalar_tensor"):
        own.impl(name, functools.partial(_made_in_cpp, name), "Meta")
    cuda = FakeCuda()
    _devices.append(cuda)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "_lazy_init", lambda: None)
        patch.setattr(Tensor, "pin_memory", _pin_memory)
        try:
            yield cuda
        finally:
            _devices.remove(cuda)
            every._destroy()
            own._destroy()


def _made(func: Any, *args: Any, **kwargs: Any) -> Any:
    return _run(func, args, kwargs)


def _made_in_cpp(name: str, *args: Any, **options: Any) -> Tensor:
    """Make a tensor on the device "meta", with numbers if it is the C++ part of torch that needs it for a `CudaTensor`.

    These are numbers that operations take as tensors, and parts of gradients.
    """
    dtype = options.pop("dtype", None)
    needed = name == "scalar_tensor" or torch._C._current_graph_task_id() != -1
    if _devices and not _state.checking and needed:
        return CudaTensor(getattr(torch, name)(*args, dtype=dtype, device=CPU))
    options = {key: value for key, value in options.items() if key in ("device", "layout")}
    shape = () if name == "scalar_tensor" else args[0]
    return torch.empty(shape, dtype=dtype or torch.get_default_dtype(), **options)


def _pin_memory(x: Tensor) -> Tensor:
    """Stand in for `Tensor.pin_memory`, which needs a GPU."""
    if isinstance(x, CudaTensor):
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    pinned = x.clone()
    pinned.pinned = True  # type: ignore[attr-defined]
    return pinned


def register_guard() -> None:
    """Let torch install the device guard that it has for machines with CUDA and without a GPU.

    It does so only where a guard is registered that counts no devices; this one has no other function.
    """
    if hasattr(register_guard, "kept"):
        return
    library = ctypes.CDLL(str(next((Path(torch.__file__).parent / "lib").glob("libc10.*"))))
    register = library["_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"]
    register.argtypes, register.restype = [ctypes.c_int8, ctypes.c_void_p], None
    zero = ctypes.CFUNCTYPE(ctypes.c_int8)(lambda: 0)
    table = (ctypes.c_void_p * 64)(*[ctypes.cast(zero, ctypes.c_void_p).value] * 64)
    guard = ctypes.c_void_p(ctypes.addressof(table))
    register(1, ctypes.addressof(guard))
    torch._C._ensureCUDADeviceGuardSet()
    register_guard.kept = (zero, table, guard)  # type: ignore[attr-defined]
