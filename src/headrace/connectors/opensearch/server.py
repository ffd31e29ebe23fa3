"""OpenSearch: one node, from Maven's jars."""

from __future__ import annotations

import json
import os
from typing import ClassVar

from headrace.services.jars import jars
from headrace.services.server import ANY, HOST, java
from headrace.services.service import HttpService

JAVA_OPTIONS = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class OpenSearch(HttpService):
    """A cluster of one node, without passwords."""

    name: ClassVar[str] = "opensearch"
    # The runner takes no port for clients above 9299. The second one is for talk between nodes.
    port_ranges: ClassVar[tuple[range, ...]] = (range(8_300, 9_200), ANY)
    ready_path: ClassVar[str] = "/_cluster/health?wait_for_status=yellow&timeout=2s"

    def prepare(self, ports: tuple[int, ...]) -> None:
        settings = {
            "network.host": HOST,
            "transport.port": str(ports[1]),
            "discovery.type": "single-node",
            # A development machine's disk is often nearly full, and then nothing could be written.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        folder = self.folder / "config"
        folder.mkdir(exist_ok=True)
        (folder / "opensearch.yml").write_text(
            "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
        )

    def command(self) -> tuple[str, ...]:
        classes = os.pathsep.join(str(jar) for jar in jars("opensearch"))
        options = {
            "basePath": str(self.data),
            "confPath": str(self.folder / "config"),
            "clusterName": "headrace",
            "numOfNode": "1",
            # Nodes are numbered from 1, and each adds its number.
            "baseHttpPort": str(self.port - 1),
        }
        arguments = [text for name, value in options.items() for text in (f"-{name}", value)]
        runner = "org.codelibs.opensearch.runner.OpenSearchRunner"
        return (java(), *JAVA_OPTIONS, "-cp", classes, runner, *arguments)
