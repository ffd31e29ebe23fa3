"""Ready detectors: steps for what most people watch for, and examples of how to write one's own."""

from headrace.detectors.card_testing import card_testing
from headrace.detectors.failed_logins import failed_logins
from headrace.detectors.impossible_travel import impossible_travel
from headrace.detectors.missing_heartbeat import missing_heartbeat
from headrace.detectors.sequence import sequence
from headrace.detectors.threshold_held import threshold_held

__all__ = [
    "card_testing",
    "failed_logins",
    "impossible_travel",
    "missing_heartbeat",
    "sequence",
    "threshold_held",
]
