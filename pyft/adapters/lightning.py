"""Lightning: `Trainer(callbacks=[RecoveryCallback()])`."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from pyft.adapters import Recoveries


class RecoveryCallback(Callback):
    """Logs pyft's recoveries to all loggers of the trainer, at the step that follows them."""

    def __init__(self) -> None:
        self._recoveries = Recoveries()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        """Log if there is something new; one process does, for all ranks."""
        if not trainer.is_global_zero or not self._recoveries.new():
            return
        for logger in trainer.loggers:
            logger.log_metrics(self._recoveries.totals(), step=trainer.global_step)
