------------------------------ MODULE Mirrors ------------------------------
(* How a depot keeps what another module's topology has still to read (leader/readers.py and                  *)
(* leader/collection.py). A reader leaves a mark where the depot is, then writes its definition, then finds   *)
(* where it starts. The owner's collection asks the marks, then the readers' logs how far they are. A reader  *)
(* may stop before any step, and is begun again.                                                              *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Readers, RecordsMax, Mutation

VARIABLES
  end,      \* so many records were appended
  start,    \* so many of them are deleted
  own,      \* so many were processed by the owner's topologies
  marks,    \* readers that left a mark
  readers   \* of each: its definition is written, it has begun, from where, up to where it is, and what it counted

vars == <<end, start, own, marks, readers>>

New == [is_defined |-> FALSE, has_begun |-> FALSE, from |-> 0, at |-> 0, counted |-> {}]

Init ==
  /\ end = 0 /\ start = 0 /\ own = 0
  /\ marks = {}
  /\ readers = [r \in Readers |-> New]

Append == end < RecordsMax /\ end' = end + 1 /\ UNCHANGED <<start, own, marks, readers>>
Process == own < end /\ own' \in (own + 1)..end /\ UNCHANGED <<end, start, marks, readers>>

(* Again after a stop: an older mark may be gone any moment, so each launch leaves one. *)
Mark(r) ==
  /\ Mutation # "a reader leaves no mark" /\ ~readers[r].has_begun
  /\ (Mutation = "the mark comes last" => readers[r].is_defined)
  /\ marks' = marks \union {r}
  /\ UNCHANGED <<end, start, own, readers>>

Define(r) ==
  /\ r \in marks \/ Mutation \in {"a reader leaves no mark", "the mark comes last"}
  /\ readers' = [readers EXCEPT ![r].is_defined = TRUE]
  /\ UNCHANGED <<end, start, own, marks>>

(* The first claim: a source begins at the first record that there is. *)
Claim(r) ==
  /\ readers[r].is_defined /\ ~readers[r].has_begun
  /\ readers' = [readers EXCEPT ![r].has_begun = TRUE, ![r].from = start, ![r].at = start]
  /\ UNCHANGED <<end, start, own, marks>>

(* A microbatch: what is deleted by then is skipped. *)
Commit(r) ==
  LET me == readers[r] IN
  /\ me.has_begun /\ me.at < end
  /\ \E to \in (me.at + 1)..end :
       readers' = [readers EXCEPT ![r].at = to, ![r].counted = @ \union {x \in (me.at + 1)..to : x > start}]
  /\ UNCHANGED <<end, start, own, marks>>

Needed(r) ==
  IF ~readers[r].is_defined \/ ~readers[r].has_begun THEN start
  ELSE IF Mutation = "a reader counts as done" THEN end ELSE readers[r].at

(* The look at the readers and the deletion are one step: a reader that begins while a collection sleeps between them
   counts as skipped what goes then. *)
Collect ==
  LET asked == IF Mutation = "collection asks nobody" THEN {} ELSE marks IN
  /\ \E to \in (start + 1)..own : (\A r \in asked : to <= Needed(r)) /\ start' = to
  /\ UNCHANGED <<end, own, marks, readers>>

Next == Append \/ Process \/ Collect \/ \E r \in Readers : Mark(r) \/ Define(r) \/ Claim(r) \/ Commit(r)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Readers)

----------------------------------------------------------------------------
(* S1: a reader counts each record from where it began to where it is. *)
S1_NothingSkipped == \A r \in Readers : readers[r].counted = (readers[r].from + 1)..readers[r].at
=============================================================================
