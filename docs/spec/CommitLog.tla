----------------------------- MODULE CommitLog -----------------------------
(* How a topology processes each record exactly once (spark_app/src/tidemill/leader). Runners that may all *)
(* believe to lead write claims, begins, commits and compactions into one log, whose entries are created if *)
(* absent (AppendLog.tla); objects of state are staged before the entry that names them; collection deletes *)
(* what nothing names any more, also from an old view. Any runner may stop, or sleep, before any step.      *)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS Runners, EntriesMax, RecordsMax, VersionsMax, ClaimsMax, Mutation

None == [id |-> 0]

VARIABLES
  log,       \* the entries, in order
  requests,  \* creates that the store may still carry out: [slot, entry]
  runners,   \* what each runner does, and the entry that it takes for the newest
  objects,   \* the staged objects of state that exist; `holds` is the set of microbatches whose changes are in one
  attempts   \* history: what each attempt read, and from which state it started

vars == <<log, requests, runners, objects, attempts>>

Origin == [kind |-> "none", by |-> "nobody", epoch |-> 0, last |-> 0, done |-> 0, count |-> 0, attempt |-> None,
           state |-> {}, previous |-> {}, pending |-> {}]

Idle == [does |-> "idle", number |-> 0, entry |-> Origin, write |-> Origin, then |-> "idle", job |-> None]

Init ==
  /\ log = << >>
  /\ requests = {}
  /\ runners = [r \in Runners |-> Idle]
  /\ objects = {}
  /\ attempts = {}

Newest == IF log = << >> THEN Origin ELSE log[Len(log)]
Holds(state) == UNION {object.holds : object \in state}
Set(r, me) == runners' = [runners EXCEPT ![r] = me]

(* A runner asks the store to create the entry after the newest that it knows. *)
Send(r, me, entry, then) ==
  LET mine == [entry EXCEPT !.by = r] IN
  /\ me.number < EntriesMax
  /\ requests' = requests \union {[slot |-> me.number + 1, entry |-> mine]}
  /\ Set(r, [me EXCEPT !.does = "waits", !.write = mine, !.then = then])

Create(request) ==
  /\ request.slot = Len(log) + 1
  /\ log' = log \o <<request.entry>>
  /\ requests' = requests \ {request}
  /\ UNCHANGED <<runners, objects, attempts>>

(* The slot holds my entry: go on. It holds another one's: somebody else leads, stop (fenced). *)
Settle(r) ==
  LET me == runners[r] slot == me.number + 1 IN
  /\ me.does = "waits" /\ Len(log) >= slot
  /\ IF log[slot] = me.write \/ Mutation = "a collision is not noticed"
     THEN Set(r, [me EXCEPT !.does = me.then, !.number = slot, !.entry = me.write])
     ELSE Set(r, Idle)
  /\ UNCHANGED <<log, requests, objects, attempts>>

(* A lease may be wrong: any runner may claim at any time. The attempt under way stays as it was begun. *)
Claim(r) ==
  LET me == runners[r]
      claim == [Newest EXCEPT !.kind = "claim", !.epoch = @ + 1,
                            !.attempt = IF Mutation = "a claim drops the attempt" THEN None ELSE @]
  IN /\ me.does = "idle" /\ Newest.epoch < ClaimsMax
     /\ Send(r, [me EXCEPT !.number = Len(log)], claim, "leads")
     /\ UNCHANGED <<log, objects, attempts>>

(* How far a range goes depends on what is in the depot by then, and on options: anything is possible. *)
Ranges(e) == [id : {e.last + 1}, version : {1}, from : {e.done}, to : (e.done + 1)..RecordsMax]

Begin(r) ==
  LET me == runners[r] e == me.entry IN
  /\ me.does = "leads"
  /\ IF e.attempt = None
     THEN \E range \in Ranges(e) : Send(r, me, [e EXCEPT !.kind = "begin", !.attempt = range], "runs")
     ELSE /\ e.attempt.version < VersionsMax
          /\ Send(r, me, [e EXCEPT !.kind = "begin", !.attempt.version = @ + 1], "runs")
  /\ UNCHANGED <<log, objects, attempts>>

(* The attempt reads its range, starts from the committed state, and stages one object before anybody names it. *)
Delta(r, e) == [id |-> e.attempt.id, version |-> e.attempt.version, by |-> r, holds |-> {e.attempt.id}]

Run(r) ==
  LET me == runners[r] e == me.entry IN
  /\ me.does = "runs"
  /\ objects' = objects \union {Delta(r, e)}
  /\ attempts' = attempts \union {[id |-> e.attempt.id, from |-> e.attempt.from, to |-> e.attempt.to, base |-> Holds(e.state)]}
  /\ Set(r, [me EXCEPT !.does = "ran"])
  /\ UNCHANGED <<log, requests>>

Fail(r) ==
  /\ runners[r].does \in {"runs", "ran"}
  /\ Set(r, [runners[r] EXCEPT !.does = "leads"])
  /\ UNCHANGED <<log, requests, objects, attempts>>

(* One entry: the new state, the progress, the ID, and, where more records wait, the next attempt's begin. *)
Commit(r) ==
  LET me == runners[r] e == me.entry
      read == e.attempt.to - e.attempt.from
      counted == IF Mutation = "a retry is counted twice" /\ e.attempt.version > 1 THEN 2 * read ELSE read
      done == [e EXCEPT !.kind = "commit", !.last = e.attempt.id, !.done = e.attempt.to, !.count = @ + counted,
                        !.state = @ \union {Delta(r, e)}, !.previous = e.state, !.attempt = None]
  IN /\ me.does = "ran"
     /\ \/ Send(r, me, done, "leads")
        \/ \E range \in Ranges(done) : Send(r, me, [done EXCEPT !.attempt = range], "runs")
     /\ UNCHANGED <<log, objects, attempts>>

(* A compaction is registered under an ID above any committed one, runs beside the attempts, and enters by an entry. *)
Register(r) ==
  LET me == runners[r] e == me.entry id == e.last + 1 IN
  /\ me.does = "leads" /\ me.job = None /\ Cardinality(e.state) > 1
  /\ LET job == [id |-> id, merges |-> e.state, is |-> "planned"] IN
     IF Mutation = "a compaction is not registered"
     THEN Set(r, [me EXCEPT !.job = job]) /\ requests' = requests
     ELSE Send(r, [me EXCEPT !.job = job], [e EXCEPT !.kind = "note", !.pending = @ \union {id}], "leads")
  /\ UNCHANGED <<log, objects, attempts>>

Merged(r, job) == [id |-> job.id, version |-> 0, by |-> r, holds |-> Holds(job.merges)]

Merge(r) ==
  LET me == runners[r] IN
  /\ me.job # None /\ me.job.is = "planned" /\ me.does # "waits"
  /\ me.job.merges \subseteq objects
  /\ objects' = objects \union {Merged(r, me.job)}
  /\ Set(r, [me EXCEPT !.job.is = "merged"])
  /\ UNCHANGED <<log, requests, attempts>>

Enter(r) ==
  LET me == runners[r] e == me.entry IN
  /\ me.does = "leads" /\ me.job # None /\ me.job.is = "merged"
  /\ Send(r, [me EXCEPT !.job = None],
          [e EXCEPT !.kind = "compact", !.state = (@ \ me.job.merges) \union {Merged(r, me.job)}, !.pending = @ \ {me.job.id}],
          "leads")
  /\ UNCHANGED <<log, objects, attempts>>

(* Any process, with any entry that it once saw, deletes what that entry and its predecessor's state do not reach. *)
Reach(e) == IF Mutation = "the previous state is forgotten" THEN e.state ELSE e.state \union e.previous
IsOver(object, e) ==
  Mutation = "collected too early" \/ (object.id <= e.last /\ object.id \notin e.pending)

Collect(number, object) ==
  /\ object \notin Reach(log[number]) /\ IsOver(object, log[number])
  /\ objects' = objects \ {object}
  /\ UNCHANGED <<log, requests, runners, attempts>>

Stop(r) ==
  /\ Set(r, Idle)
  /\ UNCHANGED <<log, requests, objects, attempts>>

Next ==
  \/ \E request \in requests : Create(request)
  \/ \E r \in Runners :
       Claim(r) \/ Settle(r) \/ Begin(r) \/ Run(r) \/ Fail(r) \/ Commit(r) \/ Register(r) \/ Merge(r) \/ Enter(r) \/ Stop(r)
  \/ \E number \in 1..Len(log), object \in objects : Collect(number, object)

Spec == Init /\ [][Next]_vars

(* Runners differ in nothing but their names. *)
Symmetry == Permutations(Runners)

----------------------------------------------------------------------------
Commits == {n \in 1..Len(log) : log[n].kind = "commit"}
Before(n) == IF n = 1 THEN Origin ELSE log[n - 1]

(* S1: only commits move progress, by the range that was begun, and the count with it. *)
S1_EachRecordOnce ==
  /\ \A n \in 1..Len(log) : log[n].count = log[n].done
  /\ \A n \in 1..Len(log) \ Commits : log[n].done = Before(n).done
  /\ \A n \in Commits : log[n].done = Before(n).attempt.to /\ Before(n).done = Before(n).attempt.from
(* S2: attempts of one ID read the same records and start from the same state. *)
S2_AttemptsAreEqual == \A a, b \in attempts : a.id = b.id => a = b
(* S3: what an entry names was staged before it. S5: the last two states stay whole. *)
S3_S5_StatesAreWhole == Newest.state \subseteq objects /\ Newest.previous \subseteq objects
(* S4: one commit an ID, by the runner that leads. *)
S4_OneCommit ==
  /\ \A m, n \in Commits : log[m].last = log[n].last => m = n
  /\ \A n \in 1..Len(log) : log[n].epoch = Before(n).epoch + (IF log[n].kind = "claim" THEN 1 ELSE 0)
(* S7: every entry is a whole number of microbatches. *)
S7_WholeMicrobatches == \A n \in 1..Len(log) : Holds(log[n].state) = 1..log[n].last
=============================================================================
