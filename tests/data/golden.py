"""What the programs that make golden files share.

In the files a case of a layer NAME has these tensors:

  NAME.x0, NAME.x1, ...      the inputs
  NAME.param.PATH            the parameters
  NAME.y                     the result
  NAME.r                     a weight of each element of the result
  NAME.grad_x0, ...          the gradients of sum(y r) to the inputs
  NAME.grad.PATH             and to the parameters
  NAME.after.PATH            the running statistics after the call

All is computed in double from numbers that are exact in f32.  The programs write the file format
themselves, from the description of the format, so that the files also test Weber's reader.
"""
import json
import pathlib
import struct

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
out = {}


def draw(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).float().double()


def keep(name, value, dtype=np.float32):
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    out[name] = np.array(value, dtype=dtype, order="C")


def case(name, f, params, inputs, after=None):
    """Adds a case with the result f(params, inputs); inputs of integers have no gradient."""
    leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
    xs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    y = f(leaves, xs)
    r = draw(*y.shape)
    (y * r).sum().backward()
    for i, x in enumerate(xs):
        keep(f"{name}.x{i}", x, np.float32 if x.is_floating_point() else np.int32)
        if x.is_floating_point():
            keep(f"{name}.grad_x{i}", x.grad if x.grad is not None else torch.zeros_like(x))
    for k, v in leaves.items():
        keep(f"{name}.param.{k}", v)
        keep(f"{name}.grad.{k}", v.grad if v.grad is not None else torch.zeros_like(v))
    keep(f"{name}.r", r)
    keep(f"{name}.y", y)
    for k, v in (after() if after else {}).items():
        keep(f"{name}.after.{k}", v)


def write(name, by):
    """Writes all tensors to the file `name` beside this one; `by` is the program."""
    names = {"float32": "F32", "int32": "I32"}
    header, data = {"__metadata__": {"made_by": by}}, b""
    for tensor in sorted(out):
        a = out[tensor]
        header[tensor] = {"dtype": names[str(a.dtype)], "shape": list(a.shape),
                          "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(header).encode()
    path = pathlib.Path(__file__).with_name(name)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    print(path, len(out), "tensors,", path.stat().st_size, "bytes")
