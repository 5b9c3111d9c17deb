"""One wall, seen by three readers: `python examples/content_moderation/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.content_moderation.module import ContentModeration
from tidemill import InProcessCluster, LaunchConfig


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(ContentModeration(), LaunchConfig(4, 2))
        posts = cluster.cluster_depot("ContentModeration", "*posts")
        mutes = cluster.cluster_depot("ContentModeration", "*mutes")
        for author, text in (("ann", "Good morning."), ("bob", "Buy two, get one!"), ("ann", "SPOILER: he did it.")):
            posts.append({"wall": "town", "author": author, "text": text})
        mutes.append({"reader": "eve", "kind": "user", "what": "bob", "muted": True})
        mutes.append({"reader": "fay", "kind": "word", "what": "spoiler", "muted": True})
        cluster.wait_until_processed("ContentModeration")

        wall = cluster.cluster_query("ContentModeration", "wall")
        for reader in ("dot", "eve", "fay"):
            answer = wall.invoke(reader, "town", None, 10)
            print(f"{reader} sees {[post['text'] for post in answer['posts']]}")
        page = wall.invoke("eve", "town", None, 1)
        print(f"eve's first page: {[post['text'] for post in page['posts']]}, the next one ends before {page['next']}")


if __name__ == "__main__":
    main()
