# SPDX-License-Identifier: MIT
"""Under the launchers that clusters have, srun and mpirun: who is who, and where the server is to
be found.

The first task serves, and all others are clients. All that they need to share is the results
folder: the server puts a file there that says where it is.
"""
from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional

# Rank, number of tasks, and what names the job; mpirun under Slurm has both kinds, and then
# mpirun's are meant.
LAUNCHERS = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("PMI_RANK", "PMI_SIZE", ("PMI_JOBID", "SLURM_JOB_ID")),
    ("SLURM_PROCID", "SLURM_NTASKS", ("SLURM_JOB_ID",)),
]
LOOK_AGAIN = 0.2  # seconds; a shared file system tells nobody what is new in it


@dataclass(frozen=True)
class Task:
    rank: int
    tasks: int
    job: str  # the same for all tasks of it and for nobody else; empty if the launcher does not say

    @property
    def serves(self) -> bool:
        return self.rank == 0


def task(environment: Mapping[str, str] = os.environ) -> Optional[Task]:
    """@return None where nobody has launched several tasks"""
    for rank, tasks, names in LAUNCHERS:
        try:
            # What srun started may be a part of the job, which has more tasks.
            many = (
                environment.get("SLURM_STEP_NUM_TASKS", environment[tasks])
                if rank == "SLURM_PROCID"
                else environment[tasks]
            )
            found = int(environment[rank]), int(many)
        except (KeyError, ValueError):
            continue
        if found[1] > 1:
            job = next((environment[name] for name in names if environment.get(name)), "")
            step = environment.get("SLURM_STEP_ID", "") if rank == "SLURM_PROCID" else ""
            return Task(*found, "-".join(part for part in (job, step) if part).replace("/", "_"))
    return None


def _file(folder: Path, task: Task) -> Path:
    return folder / f"server{'-' if task.job else ''}{task.job}.json"


def announce(folder: Path, task: Task, agent: dict) -> Path:
    """Says where the agent is, to this user's tasks only. @return the file, which is to be removed
    at the end"""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder)  # nobody else may read it: it has the token
    with os.fdopen(handle, "w") as file:
        json.dump(agent, file)
    os.replace(name, _file(folder, task))
    return _file(folder, task)


def look(folder: Path, task: Task, limit: float, unlike: Optional[dict] = None) -> Optional[dict]:
    """Where the agent is, as soon as it is known.

    @param unlike what was found before and led nowhere: it was left behind by an earlier job
    @return None after `limit` seconds"""
    deadline = time.monotonic() + limit
    while True:
        try:
            found = json.loads(_file(folder, task).read_text())
            if found != unlike:
                return found
        except (OSError, ValueError):
            pass
        if time.monotonic() > deadline:
            return None
        time.sleep(LOOK_AGAIN)
