"""transformers: `trainer.add_callback(RecoveryCallback(trainer))`."""

from __future__ import annotations

from typing import Any

from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from pyft.adapters import Recoveries


class RecoveryCallback(TrainerCallback):
    """Logs pyft's recoveries by the trainer, so to all that it reports to and into log_history."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._recoveries = Recoveries()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Log if there is something new; one process does, for all ranks."""
        if state.is_world_process_zero and self._recoveries.new():
            self._trainer.log(self._recoveries.totals())
