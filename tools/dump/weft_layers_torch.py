# SPDX-License-Identifier: Apache-2.0
"""Dumps the batch normalizations of a PyTorch model for `weft verify`, and the uses of tied parameters, beside what
weft_dump_torch.py dumps:

    import weft_dump_torch as weft_dump
    import weft_layers_torch as weft_layers
    model = weft_layers.batch_norms(model)
    logits = features @ weft_layers.use(embedding.weight, "embedding.weight", "output").T
    loss(logits).backward()
    weft_dump.save()
"""
import torch
import weft_dump_torch as weft_dump


def watch(name, layer):
    def keep(what, tensor):
        weft_dump.keep(f"{name}/{what}", tensor.movedim(1, -1) if tensor.dim() > 1 else tensor)

    def before(layer, inputs):
        x = inputs[0].view_as(inputs[0]) if inputs[0].requires_grad else inputs[0].detach().requires_grad_()
        keep("x", x)
        keep("epsilon", torch.tensor(layer.eps, dtype=torch.float64))
        if layer.weight is not None:
            keep("weight", layer.weight)
        x.register_hook(lambda gradient: keep("x.grad", gradient))
        return (x, *inputs[1:])

    def after(layer, inputs, y):
        y.register_hook(lambda gradient: keep("y.grad", gradient))
    layer.register_forward_pre_hook(before)
    layer.register_forward_hook(after)


def batch_norms(model):
    """The batch normalizations of a model: what they are given, and the gradients at their inputs and outputs."""
    for name, layer in model.named_modules() if weft_dump.folder else ():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            watch(f"batch_norm/{name.removeprefix('module.')}", layer)
    return model


def use(parameter, name, how):
    """A tied parameter as one of its users gets it, whose part of the gradient is dumped. Give each user its own."""
    view = parameter.view_as(parameter)
    if weft_dump.folder:
        view.register_hook(lambda gradient: weft_dump.keep(f"local/{name}@{how}", gradient))
    return view
