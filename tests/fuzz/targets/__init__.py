"""Every decoder, and every file of a checkpoint that is read back."""

from tests.fuzz.targets import avro, checkpoint, parquet, postgres, text

TARGETS = {target.name: target for module in (text, avro, parquet, postgres, checkpoint) for target in module.TARGETS}
