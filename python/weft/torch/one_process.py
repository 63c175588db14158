# SPDX-License-Identifier: Apache-2.0
"""The same step on one process of a running job, where all others wait or make it, too."""
import contextlib
import copy
import multiprocessing
import os

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .truth import exactly, gradients_on_one, load


class OneProcess:
    """Collective: every rank makes one, and one that is a member differentiates. `off` says whether its weights, samples and
    layers are inexact."""

    def __init__(self, member, off=exactly, share=1):
        self.member, self.off, self.model, self.gradients, self.lost = member, off, None, {}, []
        self.group = dist.new_group([member], backend="gloo")
        # Where the parent's threads were lost in a fork, more cannot be made.
        forked = isinstance(multiprocessing.current_process(), multiprocessing.context.ForkProcess)
        cores = 1 if forked else int(os.environ.get("LOCAL_WORLD_SIZE", 1)) // share
        self.threads = torch.get_num_threads() * max(1, cores)

    @contextlib.contextmanager
    def _alone(self):
        """The job has one process: what names no group is of this one."""
        before, own_threads = distributed_c10d._get_default_group(), torch.get_num_threads()
        distributed_c10d._update_default_pg(self.group)
        torch.set_num_threads(self.threads)
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            torch.set_num_threads(own_threads)
            distributed_c10d._update_default_pg(before)

    def take(self, model, whole, weights):
        """A model like that of the job. Exact weights are those of the job itself, if they are learnt: a step leaves these as they
        are, and may change others."""
        if whole is None:
            inner = getattr(model, "module", model)
            self.model = copy.deepcopy(inner, {id(p): torch.nn.Parameter(self.off(p.detach()))
                                               for p in inner.parameters() if p.requires_grad})
            with torch.no_grad():
                for x in (*(p for p in self.model.parameters() if not p.requires_grad), *self.model.buffers()):
                    x.copy_(self.off(x))
        else:
            with self._alone(), torch.no_grad():
                self.model = whole()
                load(self.model, weights, self.off)

    def differentiate(self, step, batch, random_numbers):
        with self._alone():
            self.gradients, self.lost = gradients_on_one(self.model, step, batch, random_numbers, self.off)
        self.model = None
