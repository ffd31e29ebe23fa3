"""Real servers on this machine for development and tests: no containers, loopback only."""

from headrace.services.catalogue import SERVERS, running, service
from headrace.services.service import Service

__all__ = ["SERVERS", "Service", "running", "service"]
