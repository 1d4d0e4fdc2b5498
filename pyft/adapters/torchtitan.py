"""torchtitan: `log_recoveries(trainer)` before `trainer.train()`."""

from __future__ import annotations

from typing import Any, Protocol

from pyft.adapters import Recoveries


class Logger(Protocol):
    """What torchtitan calls a BaseLogger."""

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Write the metrics of a step."""

    def close(self) -> None:
        """Write what is left."""


class Processor(Protocol):
    """What torchtitan calls a MetricsProcessor."""

    logger: Logger


class Trainer(Protocol):
    """What has the metrics of a training."""

    metrics_processor: Processor


class RecoveryLogger:
    """Adds the totals of pyft's recoveries to the metrics that torchtitan logs."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._recoveries = Recoveries()

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Write the metrics of a step, with ours."""
        self._recoveries.new()
        self._logger.log(metrics | self._recoveries.totals(), step)

    def close(self) -> None:
        """Write what is left."""
        self._logger.close()


def log_recoveries(trainer: Trainer) -> None:
    """Have a trainer of torchtitan log pyft's recoveries wherever it logs."""
    processor = trainer.metrics_processor
    processor.logger = RecoveryLogger(processor.logger)
