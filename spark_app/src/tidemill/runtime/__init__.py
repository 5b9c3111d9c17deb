"""What happens around the steps: runners that fix ranges and commit, upkeep, what clients read and append, checks.

`machine`, `compose`, `ranges` and `upkeep` are pure; `shell` and `world` connect them to the store, the clock and the
threads. Nothing here knows Spark.
"""
