# SPDX-License-Identifier: Apache-2.0
"""Dumps a training step of JAX for `weft verify`, if WEFT_DUMP names a folder; otherwise does nothing.

A function under shard_map returns what each device has, with a leading axis of one, so that its out_specs put the devices
one behind the other. `save` takes these arrays, by name:

    import weft_dump_jax as weft_dump
    weft_dump.save("clip",
                   features={"images": images, "texts": texts},       # what goes into the loss
                   gradients={"images": of_images, "texts": of_texts},  # its gradient, as it reaches the encoder
                   scalars={"scale": scale}, scalar_gradients={"scale": of_scale},
                   local=grads, reduced=mean_grads)  # pytrees: of parameters, before and after psum or pmean

    WEFT_DUMP=folder python train.py; weft verify folder
"""
import json
import os
import pathlib

import jax
import numpy

_types = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16", "int64": "I64", "int32": "I32"}


def _write(path, tensors):
    header, data = {}, []
    at = 0
    for name, tensor in tensors.items():
        tensor = numpy.ascontiguousarray(tensor)
        data.append(tensor.tobytes())
        header[name] = {"dtype": _types[tensor.dtype.name], "shape": tensor.shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))


def _named(prefix, tree):
    """The leaves of a pytree by their paths: "encoder.0.weight"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    key = lambda part: str(getattr(part, "key", getattr(part, "idx", getattr(part, "name", part))))
    return {f"{prefix}/" + ".".join(map(key, path)): leaf for path, leaf in leaves}


def save(loss=None, *, features=(), gradients=(), scalars=(), scalar_gradients=(), local=(), reduced=(), options=None,
         reducer="mean"):
    """Every array has an entry for each device along its first axis. A later call replaces an earlier one."""
    folder = os.environ.get("WEFT_DUMP")
    if not folder:
        return
    tensors = {**dict(features), **dict(scalars), **_named("local", local), **_named("reduced", reduced)}
    tensors.update({f"{name}.grad": array for group in (gradients, scalar_gradients) for name, array in dict(group).items()})
    tensors = {name: numpy.asarray(array) for name, array in tensors.items()}
    ranks = next(iter(tensors.values())).shape[0]
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        _write(place / f"rank{rank}.safetensors", {name: array[rank] for name, array in tensors.items()})
    manifest = {"weft_manifest": 1, "reducer": reducer, "files": [f"rank{rank}.safetensors" for rank in range(ranks)]}
    if loss:
        manifest["loss"] = {"name": loss, "options": options or {}}
    (place / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
