# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine that form a gloo job."""
import datetime
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist


def _work(function, rank, ranks, folder, seconds):
    torch.set_num_threads(1)  # threads of the parent do not survive a fork
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks,
                                timeout=datetime.timedelta(seconds=seconds))
        torch.save(function(rank), f"{folder}/{rank}")
        dist.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)  # the interpreter's own end could wait for threads that a fork has not brought along
    except BaseException as error:
        traceback.print_exc()
        with open(f"{folder}/error{rank}", "w") as file:
            file.write(f"{type(error).__name__}: {error}".splitlines()[0])
        os._exit(1)


def on_ranks(function, ranks, seconds=120):
    """[function(0), function(1), ...], each computed by a process of its own, which inherits all that this one has."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        processes = [context.Process(target=_work, args=(function, rank, ranks, folder, seconds), daemon=True)
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        running = list(processes)
        while running and not any(process.exitcode for process in processes):
            multiprocessing.connection.wait([process.sentinel for process in running])
            running = [process for process in running if process.exitcode is None]
        for process in running:  # they wait for one that has failed
            process.terminate()
            process.join()
        for rank, process in enumerate(processes):
            if process.exitcode > 0:
                with open(f"{folder}/error{rank}") as file:
                    raise RuntimeError(f"rank {rank} of {ranks} failed: {file.read()}")
        if running or any(process.exitcode for process in processes):
            raise RuntimeError(f"a process of {ranks} was ended by a signal")
        return [torch.load(f"{folder}/{rank}", weights_only=False) for rank in range(ranks)]
