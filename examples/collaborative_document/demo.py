"""Three people write at once, all against version 1: `python examples/collaborative_document/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.collaborative_document.module import CollaborativeDocument
from tidemill import InProcessCluster, LaunchConfig


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(CollaborativeDocument(), LaunchConfig(4, 2))
        edits = cluster.cluster_depot("CollaborativeDocument", "*edits")
        document = cluster.cluster_query("CollaborativeDocument", "document")
        edits.append({"id": "ann-1", "doc": "letter", "version": 0, "at": 0, "add": "Dear world"})
        cluster.wait_until_processed("CollaborativeDocument")
        print(document.invoke("letter"))

        edits.append({"id": "bob-1", "doc": "letter", "version": 1, "at": 4, "add": " wide"})
        edits.append({"id": "cid-1", "doc": "letter", "version": 1, "at": 0, "remove": 5})
        edits.append({"id": "ann-2", "doc": "letter", "version": 1, "at": 10, "add": "!"})
        edits.append({"id": "ann-2", "doc": "letter", "version": 1, "at": 10, "add": "!"})
        cluster.wait_until_processed("CollaborativeDocument")
        print(document.invoke("letter"))
        for change in cluster.cluster_query("CollaborativeDocument", "since").invoke("letter", 1):
            print(f"{change['id']} at {change['at']}: added {change['add']!r}, removed {change['remove']}")


if __name__ == "__main__":
    main()
