# SPDX-License-Identifier: Apache-2.0
"""Arrays of any framework, and the safetensors files that hold them."""
import json
import os
import struct

import numpy

_types = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16", "int64": "I64", "uint8": "U8"}


def _numbers(name, array):
    """The type of an array's numbers, their shape and their bytes. NumPy has no bfloat16: its bits are those of int16."""
    if hasattr(array, "detach"):  # PyTorch
        array = array.detach().cpu().contiguous()
        kind = str(array.dtype).removeprefix("torch.")
        array = (array.view(__import__("torch").int16) if kind == "bfloat16" else array).numpy()
    else:
        array = numpy.asarray(array)
        kind = array.dtype.name
    if kind not in _types:
        raise ValueError(f"{name}: arrays of {kind} have no place in a dump; there are {', '.join(_types)}")
    return _types[kind], list(array.shape), numpy.ascontiguousarray(array).tobytes()


def save(path, arrays):
    """Writes a safetensors file of arrays by name: of NumPy, PyTorch, JAX, or whatever NumPy takes for one."""
    header, parts, end = {}, [], 0
    for name, array in arrays.items():
        kind, shape, data = _numbers(name, array)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end := end + len(data)]}
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.fspath(path), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)
