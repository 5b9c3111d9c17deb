"""A hundred people want the same name: `python examples/user_profiles/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.user_profiles.module import UserProfiles
from tidemill import InProcessCluster, LaunchConfig, Path


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(UserProfiles(), LaunchConfig(4, 2))
        registrations = cluster.cluster_depot("UserProfiles", "*registrations")
        wanted = [{"user": f"id-{n}", "name": "ann", "email": f"{n}@example.org"} for n in range(100)]
        registrations.append_many(wanted)
        cluster.wait_until_processed("UserProfiles")

        names = cluster.cluster_pstate("UserProfiles", "$$names")
        profiles = cluster.cluster_pstate("UserProfiles", "$$profiles")
        owner = names.select_one(Path.key("ann"))
        found = [each["user"] for each in wanted if profiles.select_one(Path.key(each["user"]))]
        print(f"the name belongs to {owner}; profiles of {found}")

        edits = cluster.cluster_depot("UserProfiles", "*edits")
        edits.append({"user": owner, "edits": {"city": "Oslo", "name": "bob"}})
        edits.append({"user": owner, "edits": {"city": "Rome", "about": "I was first."}})
        cluster.wait_until_processed("UserProfiles")
        print(profiles.select_one(Path.key(owner)))


if __name__ == "__main__":
    main()
