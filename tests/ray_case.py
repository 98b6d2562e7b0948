"""A Ray cluster of several nodes on this machine, in a process of its own: nodes join and are killed by a word.

Run as a program it makes a head and, for each ``add`` on standard input, one more node of one CPU; ``kill``
kills the latest of them with everything that runs on it, as when a machine loses its power.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class LocalCluster:
    """The other process."""

    process: subprocess.Popen[str]
    address: str

    def tell(self, word: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, f"the cluster did not answer to {word}"
        return answer


@contextmanager
def local_cluster(extra_nodes: int) -> Generator[LocalCluster]:
    environ = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environ,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "Ray did not start"
        cluster = LocalCluster(process, address)
        for _ in range(extra_nodes):
            cluster.tell("add")
        yield cluster
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def _serve() -> None:
    from ray.cluster_utils import Cluster

    sizes = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    # No worker on the head: a head that is killed takes the cluster along.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 0, **sizes})
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    nodes = []
    for line in sys.stdin:
        word = line.strip()
        if word == "add":
            nodes.append(cluster.add_node(num_cpus=1, num_gpus=0, object_store_memory=80 * 2**20))
            answer = nodes[-1].node_id
        else:
            answer = nodes[-1].node_id
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    cluster.shutdown()


if __name__ == "__main__":
    _serve()
