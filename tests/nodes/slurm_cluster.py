"""A real Slurm on the hosts of a fabric: slurmctld on the switch, a slurmd on each host.

Debian's `slurmctld`, `slurmd` and `slurm-client`. Without munge, accounting and control groups: all of
it is root's here, and the machine has one hierarchy of groups for all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from fabric import SWITCH, Fabric
from job import wait_for

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel")
_CONFIGURATION = """\
ClusterName=pyft
SlurmctldHost=switch({switch})
SlurmctldPort={port}
SlurmdPort={slurmd_port}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
TopologyPlugin=topology/tree
SlurmdTimeout={timeout}
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""


def lacks() -> str:
    """Return what is missing, nothing if all is there."""
    for program in PROGRAMS:
        if not shutil.which(program):
            return f"the program [{program}] is missing: Debian's slurmctld, slurmd, slurm-client"
    return ""


class Cluster:
    """Slurm on all hosts of a fabric, each below a switch of its own, but for the first two."""

    def __init__(self, fabric: Fabric, folder: Path, timeout: int = 10) -> None:
        """`timeout`: seconds of silence after which Slurm takes a host for dead."""
        self.folder, self._fabric = folder, fabric
        (folder / "state").mkdir(parents=True)
        conf = folder / "slurm.conf"
        nodes = [f"NodeName={h.name} NodeAddr={h.address} CPUs=1" for h in fabric.hosts]
        conf.write_text(
            _CONFIGURATION.format(
                *(),
                switch=SWITCH,
                port=6817,  # in a network of its own
                slurmd_port=6818,
                folder=folder,
                timeout=timeout,
                nodes="\n".join(nodes),
            )
        )
        switches = [["h0", "h1"], *([host.name] for host in fabric.hosts[2:])]
        lines = [f"SwitchName=r{n} Nodes={','.join(names)}" for n, names in enumerate(switches)]
        above = ",".join(f"r{n}" for n in range(len(switches)))
        (folder / "topology.conf").write_text(
            "\n".join([*lines, f"SwitchName=top Switches={above}\n"])
        )
        self.environment = os.environ | {"SLURM_CONF": str(conf)}
        self.controller = self._start("slurmctld", "-D")
        for host in fabric.hosts:
            host.start(_named(host.name, "slurmd", "-D"), self.environment, folder / host.name)
        idle = f"{len(fabric.hosts)} idle"
        wait_for(lambda: idle in self.ask("sinfo", "-h", "-o", "%D %t"), 30, self.everything)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        return self._fabric.start_head(
            _named("switch", *command), self.environment, self.folder / "controller"
        )

    def ask(self, *command: str, **environment: str) -> str:
        """Run a command of Slurm where the controller is; return what it says."""
        inside = ["nsenter", f"--net=/run/netns/{self._fabric.switch}", "--"]
        done = subprocess.run(
            [*inside, *_named("switch", *command)],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def everything(self) -> str:
        """Return what all of it has said."""
        paths = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        return "\n".join(f"--- {path.name}\n{path.read_text()[-4000:]}" for path in paths)

    def end(self) -> None:
        """End the controller; the others end with their hosts."""
        self.controller.terminate()
        self.controller.wait(30)


def _named(name: str, *command: str) -> list[str]:
    """Return a command that sees this as its host's name."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh", *command]
