"""A star with 250 fans posts; pages of 100 go over several microbatches: `python examples/social_graph/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.social_graph.module import SocialGraph
from tidemill import InProcessCluster, LaunchConfig

FANS = 250


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(SocialGraph(page=50, pages=2), LaunchConfig(4, 2))
        follows = cluster.cluster_depot("SocialGraph", "*follows")
        posts = cluster.cluster_depot("SocialGraph", "*posts")
        pairs = [(f"fan{n}", "star") for n in range(FANS)] + [("fan7", "moon"), ("fan8", "moon"), ("moon", "sun")]
        follows.append_many([{"from": fan, "to": star, "follows": True} for fan, star in pairs])
        cluster.wait_until_processed("SocialGraph")
        posts.append({"id": 1, "author": "star", "text": "I am on tour."})
        posts.append({"id": 2, "author": "moon", "text": "It is night."})
        # Each microbatch that leaves fans to a later one appends a record for it, so the whole count is known.
        cluster.wait_for_microbatch_processed_count("SocialGraph", "social", len(pairs) + 2 + FANS // 100)

        microbatches, _ = cluster.microbatch_state("SocialGraph", "social")
        timeline = cluster.cluster_query("SocialGraph", "timeline")
        got = sum(any(post["author"] == "star" for post in timeline.invoke(f"fan{n}", 10, 20)) for n in range(FANS))
        print(f"{got} of {FANS} fans have the star's post")
        print("several microbatches:", microbatches > 2)
        print("fan7 sees:", [post["text"] for post in timeline.invoke("fan7", 10, 20)])
        follows.append({"from": "fan7", "to": "star", "follows": False})
        cluster.wait_until_processed("SocialGraph")
        print("fan7 sees:", [post["text"] for post in timeline.invoke("fan7", 10, 20)])
        print("fan7 may like:", cluster.cluster_query("SocialGraph", "suggestions").invoke("fan7"))


if __name__ == "__main__":
    main()
