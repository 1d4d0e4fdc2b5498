"""What a simulated cluster and a mechanism are. Times are hours, sizes are nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyft_lab.errors import SpecError
from pyft_lab.models import rates

SOFT, NODE, RACK, JOB = 0, 1, 2, 3  # kinds of faults; what they take: nothing, a node, a rack, all


@dataclass(frozen=True)
class Cluster:
    """How often what fails. Shares are of all faults; the rest are soft: the node goes on."""

    gpus: int
    per_1000_node_days: float
    gpus_per_node: int = 8
    nodes_per_rack: int = 16
    node_share: float = 0.35
    rack_share: float = 0.01
    job_share: float = 0.0  # also take the program's own processes: nothing in memory is left
    repair_median_h: float = 24.0
    repair_sigma: float = 0.9  # of the lognormal
    spares: int = 160
    weibull: float = 1.0  # shape of the times between faults; 1 is exponential

    def __post_init__(self) -> None:
        shares = (self.node_share, self.rack_share, self.job_share)
        if min(shares) < 0 or sum(shares) > 1:
            raise SpecError(f"shares of faults {list(shares)} must be 0 to 1 together")
        if self.gpus < self.gpus_per_node or self.per_1000_node_days <= 0 or self.weibull <= 0:
            raise SpecError("a cluster has at least one node, and rate and shape above 0")

    @property
    def nodes(self) -> int:
        return self.gpus // self.gpus_per_node

    @property
    def mtbf_h(self) -> float:
        return rates.mtbf_h(self.gpus, self.per_1000_node_days, self.gpus_per_node)

    @property
    def mean_repair_h(self) -> float:
        return self.repair_median_h * math.exp(self.repair_sigma**2 / 2)


@dataclass(frozen=True)
class Mechanism:
    """How a job goes on after a fault. The persistent checkpoint is used if memory is lost."""

    interval: float  # work between recoverable states
    stall: float  # of the job for each of them
    lag: float  # until one is durable
    recover: float  # detection to training again, without work that is done again
    overhead: float  # share of each step
    copies: int  # of a node's state in other nodes' memory; 0: the interval's states are on disk
    distance: int  # in nodes, between a state and its copies; 0: all in one node
    protect: float  # after the recovery, until the copies are whole again
    disk_interval: float  # work between persistent checkpoints beside the copies
    disk_stall: float
    disk_recover: float
    soft_hurts: bool = True  # a fault that leaves the node takes the state that the node keeps

    def __post_init__(self) -> None:
        if self.interval <= 0 or self.disk_interval <= 0 or not 0 <= self.overhead < 1:
            raise SpecError("intervals are above 0, and the overhead is a share below 1")
        if self.lag > self.interval + self.stall:
            raise SpecError(f"a state [{self.lag:g} h] late is not durable within its interval")
        if self.copies not in (0, 1, 2):
            raise SpecError(f"[{self.copies}] copies: 0, 1 or 2")

    def numbers(self) -> tuple[float, ...]:
        """Return the row that the engine takes; the order is that of its unpacking."""
        return (
            self.interval, self.stall, self.lag, self.recover, self.overhead, float(self.copies),
            float(self.distance), self.protect, self.disk_interval, self.disk_stall,
            self.disk_recover, float(self.soft_hurts),
        )  # fmt: skip
