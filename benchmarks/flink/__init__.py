"""Apache Flink as a peer: an environment of its own, and one SQL job as a process of its own."""
