"""The formulas of the loss terms, one per file: functions of logits, distributions or boxes."""
