"""Count the words of Python's own poem: `python examples/word_count/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

import codecs
import contextlib
import io

from examples.word_count.module import WordCount
from tidemill import InProcessCluster, LaunchConfig, Path


def poem() -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13").splitlines()


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(WordCount(), LaunchConfig(4, 2))
        cluster.cluster_depot("WordCount", "*lines").append_many(poem())
        cluster.wait_until_processed("WordCount")

        top = cluster.cluster_pstate("WordCount", "$$top").select_one(Path.stay())
        print("most frequent:", top[0])
        print("'beautiful' was met", cluster.cluster_pstate("WordCount", "$$counts").select_one(Path.key("beautiful")))
        print(f"share of 'is': {cluster.cluster_query('WordCount', 'share').invoke('is'):.1%}")


if __name__ == "__main__":
    main()
