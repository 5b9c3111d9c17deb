---------------------------- MODULE Publication ----------------------------
(* How what committed microbatches append to depots gets there exactly once (S8; leader/publication.py and   *)
(* leader/publisher.py). A commit lists its staged append; later entries list it until it was seen in the   *)
(* depot. Anybody who has an entry publishes what that lists, also a leader that is none any more; the depot *)
(* takes each number of a producer once, and numbers rise. Any runner may stop, or sleep, before any step.   *)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS Runners, EntriesMax, MicrobatchesMax, ClaimsMax, Mutation

VARIABLES
  log,       \* the entries, in order
  runners,   \* what each runner does, the entry that it takes for the newest, and the appends that it saw in the depot
  parts,     \* the staged appends whose records exist: [id |-> microbatch, by |-> who staged them]
  depot      \* what was appended: the number, and the digest under which it was

vars == <<log, runners, parts, depot>>

Origin == [kind |-> "none", epoch |-> 0, last |-> 0, appends |-> {}]
Idle   == [does |-> "idle", number |-> 0, entry |-> Origin, seen |-> {}]

Init ==
  /\ log = << >>
  /\ runners = [r \in Runners |-> Idle]
  /\ parts = {}
  /\ depot = << >>

Newest == IF log = << >> THEN Origin ELSE log[Len(log)]
Set(r, me) == runners' = [runners EXCEPT ![r] = me]
First(appends) == CHOOSE a \in appends : \A b \in appends : a.id <= b.id
LastPublished == IF depot = << >> THEN 0 ELSE depot[Len(depot)].id

(* An entry is created after the one that the runner knows, or another runner's is there: it stops (AppendLog.tla). *)
Write(r, me, entry, does) ==
  IF me.number = Len(log)
  THEN /\ log' = log \o <<entry>>
       /\ Set(r, [me EXCEPT !.does = does, !.number = Len(log) + 1, !.entry = entry])
  ELSE log' = log /\ Set(r, Idle)

Claim(r) ==
  LET before == Newest.appends
      kept == IF Mutation = "a claim forgets appends" /\ before # {} THEN before \ {First(before)} ELSE before
  IN /\ runners[r].does = "idle" /\ Newest.epoch < ClaimsMax /\ Len(log) < EntriesMax
     /\ Write(r, [Idle EXCEPT !.number = Len(log)], [Newest EXCEPT !.kind = "claim", !.epoch = @ + 1, !.appends = kept], "leads")
     /\ UNCHANGED <<parts, depot>>

(* What an entry may leave out: only what its writer saw in the depot. *)
Left(me) == IF Mutation = "an entry leaves out what is not published" THEN {} ELSE me.entry.appends \ me.seen

Stage(r) ==
  LET me == runners[r] IN
  /\ me.does = "leads" /\ me.entry.last < MicrobatchesMax
  /\ parts' = parts \union {[id |-> me.entry.last + 1, by |-> r]}
  /\ Set(r, [me EXCEPT !.does = "staged"])
  /\ UNCHANGED <<log, depot>>

Commit(r) ==
  LET me == runners[r] id == me.entry.last + 1
      done == [me.entry EXCEPT !.kind = "commit", !.last = id, !.appends = Left(me) \union {[id |-> id, by |-> r]}]
  IN /\ me.does = "staged" /\ Len(log) < EntriesMax
     /\ Write(r, me, done, "leads")
     /\ UNCHANGED <<parts, depot>>

(* Any other entry: a begin, a note, the end of a compaction. *)
Note(r) ==
  LET me == runners[r] IN
  /\ me.does = "leads" /\ me.seen \intersect me.entry.appends # {} /\ Len(log) < EntriesMax
  /\ Write(r, me, [me.entry EXCEPT !.kind = "note", !.appends = Left(me)], "leads")
  /\ UNCHANGED <<parts, depot>>

(* One idempotent append, the lowest first. Its answer may be lost: then it is done, and its sender does not know. *)
Digest(r, append) == IF Mutation = "another digest each time" THEN r ELSE append.by

Publish(r) ==
  LET me == runners[r] waiting == me.entry.appends \ me.seen append == First(waiting)
      known == [me EXCEPT !.seen = @ \union {append}]
  IN /\ me.does \in {"leads", "staged"} /\ waiting # {}
     /\ IF append.id <= LastPublished /\ Mutation # "a producer is not known again"
        THEN LET is_mine == append.id < LastPublished \/ depot[Len(depot)].digest = Digest(r, append)
             IN Set(r, IF is_mine THEN known ELSE [me EXCEPT !.does = "refused"]) /\ depot' = depot
        ELSE /\ append \in parts
             /\ depot' = depot \o <<[id |-> append.id, digest |-> Digest(r, append)]>>
             /\ \/ Set(r, known)
                \/ Set(r, me)
     /\ UNCHANGED <<log, parts>>

(* Any process, with any entry that it once saw, deletes the parts of committed microbatches which that does not list. *)
Collect(number, part) ==
  /\ part.id <= log[number].last
  /\ part \notin log[number].appends \/ Mutation = "collected too early"
  /\ parts' = parts \ {part}
  /\ UNCHANGED <<log, runners, depot>>

Stop(r) == Set(r, Idle) /\ UNCHANGED <<log, parts, depot>>

Next ==
  \/ \E r \in Runners : Claim(r) \/ Stage(r) \/ Commit(r) \/ Note(r) \/ Publish(r) \/ Stop(r)
  \/ \E number \in 1..Len(log), part \in parts : Collect(number, part)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Runners)

----------------------------------------------------------------------------
Published == {depot[n].id : n \in 1..Len(depot)}
(* S8: each append is in the depot once, and in the order of the microbatches. *)
S8_OnceInOrder == \A m, n \in 1..Len(depot) : m < n => depot[m].id < depot[n].id
(* S8: only what is committed is published. *)
S8_OnlyCommitted == \A id \in Published : id <= Newest.last
(* S8: what is committed is published, or still listed. *)
S8_NothingForgotten == \A id \in 1..Newest.last : id \in Published \/ \E a \in Newest.appends : a.id = id
(* S8: what is listed and not published can be read. *)
S8_PartsAreThere == \A a \in Newest.appends : a.id \in Published \/ a \in parts
(* S8: a repeated append is known again, and not refused as another one's. *)
S8_NobodyIsRefused == \A r \in Runners : runners[r].does # "refused"
=============================================================================
