"""An OpenSearch node for development and tests."""

from __future__ import annotations

import json
from typing import ClassVar

from headrace.services.jars import java_command
from headrace.services.server import ANY, HOST
from headrace.services.service import HttpService


class OpenSearch(HttpService):
    """A cluster of one node, without passwords, from Maven's jars."""

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
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in settings.items()]
        (folder / "opensearch.yml").write_text("".join(lines))

    def command(self) -> tuple[str, ...]:
        where = ("-basePath", str(self.data), "-confPath", str(self.folder / "config"))
        # Nodes are numbered from 1, and each adds its number to the port.
        node = ("-clusterName", "headrace", "-numOfNode", "1", "-baseHttpPort", str(self.port - 1))
        return (*java_command("opensearch"), "org.codelibs.opensearch.runner.OpenSearchRunner", *where, *node)
