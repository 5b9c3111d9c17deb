"""Compaction of a topology's levels: the merge of `tables`, and the objects that it is written to."""

from __future__ import annotations

from dataclasses import replace

from tidemill.engine.work import CompactionWork
from tidemill.journal.snapshot import Part, TaskSet
from tidemill.store.urls import open_store
from tidemill.tables.compaction import merge
from tidemill.tables.stored_parts import part_loader
from tidemill.values import ids


def compact_thread(work: CompactionWork, thread: int) -> Part | None:
    """Merges the levels of one thread's tasks, or of a piece, into one object; None if nothing is left of them.

    The name holds a microbatch ID greater than the last commit at its registration, so that no collection that works on
    an older entry can take it for garbage.
    """
    layouts = {**work.retired, **{plan.id: plan.layout for plan in work.program.pstates.values()}}
    loader = part_loader(work.store_url, work.prefix)
    task_set = work.pieces[thread] if work.pieces else TaskSet(work.threads, thread)
    name = f"runs/{work.microbatch_id:020d}-{0:06d}-{thread:04d}-{ids.nonce()}.zip"
    key = f"{work.prefix}/{name}"
    merged = merge(layouts, work.levels, task_set, loader, is_base=work.is_base, key=key)
    if merged is None:
        return None
    content, part = merged
    part = replace(part, name=name, tasks=task_set)
    open_store(work.store_url, probe=False).create(key, content)
    loader.keep(part, content)
    return part
