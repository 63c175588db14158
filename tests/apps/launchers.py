# SPDX-License-Identifier: Apache-2.0
"""The variables that launchers give to their processes. Without the protocol that these name, as here, a process cannot
find the others of its job."""
import collections
import os
import re
import subprocess

# A process of a job: `rank` of `ranks`, the `local`-th on the `node`-th of `nodes`.
Task = collections.namedtuple("Task", "rank ranks node nodes local")


def tasks_on(placement):
    """The processes of a job with so many on each node."""
    tasks = [(node, local) for node, number in enumerate(placement) for local in range(number)]
    return [Task(rank, len(tasks), node, len(placement), local) for rank, (node, local) in enumerate(tasks)]


def srun(task):
    nodes = f"node[1-{task.nodes}]"
    return {"SLURM_JOB_ID": 7, "SLURM_JOBID": 7, "SLURM_STEP_ID": 0, "SLURM_STEPID": 0, "SLURM_MPI_TYPE": "none",
            "SLURM_JOB_NODELIST": nodes, "SLURM_NODELIST": nodes, "SLURM_STEP_NODELIST": nodes,
            "SLURM_NNODES": task.nodes, "SLURM_NODEID": task.node, "SLURM_LOCALID": task.local,
            "SLURM_PROCID": task.rank, "SLURM_NTASKS": task.ranks, "SLURM_NPROCS": task.ranks}


def srun_with_pmi2(task):
    return {**srun(task), "SLURM_MPI_TYPE": "pmi2", "PMI_FD": 13, "PMI_JOBID": "7.0", "PMI_RANK": task.rank,
            "PMI_SIZE": task.ranks}


def srun_with_pmix(task):
    return {**srun(task), "SLURM_MPI_TYPE": "pmix", "PMIX_RANK": task.rank, "PMIX_NAMESPACE": "slurm.pmix.7.0",
            "PMIX_SERVER_URI2": "pmix-server.102;tcp4://127.0.0.1:9", "PMIX_VERSION": "4.2.2"}


def torchrun(task):
    return {"RANK": task.rank, "WORLD_SIZE": task.ranks, "LOCAL_RANK": task.local, "GROUP_RANK": task.node,
            "MASTER_ADDR": "node1", "MASTER_PORT": 29500, "TORCHELASTIC_RUN_ID": "7"}


# Those that do not suit a program of this library.
unsuitable = {"MPICH": (srun, srun_with_pmix, torchrun), "Open MPI": (srun, srun_with_pmi2, torchrun),
              "no MPI": (srun, srun_with_pmi2, srun_with_pmix, torchrun)}
remedies = {"MPICH": "mpiexec.mpich -n {} PROGRAM", "Open MPI": "mpiexec.openmpi -n {} PROGRAM",
            "no MPI": "build it with MPI (-Dmpi=enabled)"}

# Between mpiexec and a program: Slurm's variables beside those of the library's protocol, as from srun --mpi=pmi2 or pmix.
suitable_srun = ["sh", "-c", "export SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=${PMI_RANK-$OMPI_COMM_WORLD_RANK} "
                 "SLURM_NTASKS=${PMI_SIZE-$OMPI_COMM_WORLD_SIZE}; exec \"$@\"", "sh"]


def version_of(mpiexec):
    return subprocess.run([mpiexec, "--version"], capture_output=True, text=True).stdout


def is_open_mpi(mpiexec):
    return "open-mpi" in version_of(mpiexec)


def hides_crashes(mpiexec):
    """MPICH 4.2's mpiexec returns 0 after some jobs of which a rank has ended by a signal, whatever the program."""
    return bool(re.search(r"Version: +4\.2", version_of(mpiexec)))


def code_after_signal(mpiexec, code_of_ranks):
    """Open MPI's mpiexec tells its ranks to end, and returns 1 whatever they return."""
    return 1 if mpiexec and is_open_mpi(mpiexec) else code_of_ranks


def environment_of(launcher, task):
    return {**os.environ, **{name: str(value) for name, value in launcher(task).items()}}


def refusal_complaint(ended, library, ranks):
    """What is wrong with the end of all processes of a job that should not have been started so."""
    said = "".join(run.stdout + run.stderr for run in ended)
    codes = {run.returncode for run in ended}
    if codes == {90} and said.count("wrong launcher: ") == 1 and remedies[library].format(ranks) in said:
        return None
    return f"exit codes {codes}, not 90 and one remedy:\n{said}"
