----------------------------- MODULE Quarantine -----------------------------
(* How a record at which the module's code raises is left out of its microbatch and kept once, and how what   *)
(* people decide on it is done once (leader/diagnosis.py, journal/settlements.py, clients/quarantine.py).     *)
(* What is left out stands in the begin entry, and every later attempt leaves it out too; the commit puts it  *)
(* into the quarantine (as Publication.tla says). A decision is made when its entry is in the log of          *)
(* decisions; whoever finds the newest one finishes it, and only then is another one made.                    *)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS Runners, RecordsMax, Poison, EntriesMax, ClaimsMax, DecisionsMax, Mutation

None == [version |-> 0]

VARIABLES
  log,      \* the entries of the topology, in order
  runners,  \* what each runner takes for the newest entry
  decided,  \* the decisions, in order: [action, chosen]; `chosen` are places in the quarantine
  people,   \* what each one who decides does, and up to which decision all is finished, as far as they know
  again     \* the idempotent appends of retried records: [number, chosen]

vars == <<log, runners, decided, people, again>>

Origin == [kind |-> "none", epoch |-> 0, done |-> 0, counted |-> {}, held |-> << >>, attempt |-> None]
Idle   == [does |-> "idle", number |-> 0, entry |-> Origin]
Away   == [does |-> "away", number |-> 0]

Init ==
  /\ log = << >>
  /\ runners = [r \in Runners |-> Idle]
  /\ decided = << >>
  /\ people = [p \in Runners |-> Away]
  /\ again = << >>

Newest == IF log = << >> THEN Origin ELSE log[Len(log)]
Lowest(records) == CHOOSE x \in records : \A y \in records : x <= y

RECURSIVE InOrder(_)
InOrder(records) == IF records = {} THEN << >> ELSE <<Lowest(records)>> \o InOrder(records \ {Lowest(records)})

Write(r, me, entry, does) ==
  IF me.number = Len(log)
  THEN /\ log' = log \o <<entry>>
       /\ runners' = [runners EXCEPT ![r] = [me EXCEPT !.does = does, !.number = Len(log) + 1, !.entry = entry]]
  ELSE log' = log /\ runners' = [runners EXCEPT ![r] = Idle]

Claim(r) ==
  LET kept == IF Mutation = "a claim forgets poison" /\ Newest.attempt # None
              THEN [Newest.attempt EXCEPT !.left = {}, !.told = {}] ELSE Newest.attempt
  IN /\ runners[r].does = "idle" /\ Newest.epoch < ClaimsMax /\ Len(log) < EntriesMax
     /\ Write(r, [Idle EXCEPT !.number = Len(log)], [Newest EXCEPT !.kind = "claim", !.epoch = @ + 1, !.attempt = kept], "leads")
     /\ UNCHANGED <<decided, people, again>>

Begin(r) ==
  LET me == runners[r] e == me.entry IN
  /\ me.does = "leads" /\ e.attempt = None /\ Len(log) < EntriesMax
  /\ \E to \in (e.done + 1)..RecordsMax :
       Write(r, me, [e EXCEPT !.kind = "begin", !.attempt = [version |-> 1, to |-> to, left |-> {}, told |-> {}]], "leads")
  /\ UNCHANGED <<decided, people, again>>

Read(e) == ((e.done + 1)..e.attempt.to) \ e.attempt.left
Failing(e) == Read(e) \intersect Poison

(* The attempt fails. The record that is to blame is found, and the next version is begun without it. *)
Find(r) ==
  LET me == runners[r] e == me.entry IN
  /\ me.does = "leads" /\ e.attempt # None /\ Failing(e) # {} /\ Len(log) < EntriesMax
  /\ LET found == Lowest(Failing(e))
         gone == IF Mutation = "another record is left out" THEN Lowest(Read(e)) ELSE found
     IN Write(r, me, [e EXCEPT !.kind = "begin", !.attempt.version = @ + 1,
                               !.attempt.left = @ \union {gone}, !.attempt.told = @ \union {found}], "leads")
  /\ UNCHANGED <<decided, people, again>>

Commit(r) ==
  LET me == runners[r] e == me.entry IN
  /\ me.does = "leads" /\ e.attempt # None /\ Failing(e) = {} /\ Len(log) < EntriesMax
  /\ Write(r, me, [e EXCEPT !.kind = "commit", !.done = e.attempt.to, !.counted = @ \union Read(e),
                            !.held = @ \o InOrder(e.attempt.told), !.attempt = None], "leads")
  /\ UNCHANGED <<decided, people, again>>

Stop(r) == runners' = [runners EXCEPT ![r] = Idle] /\ UNCHANGED <<log, decided, people, again>>

(* --- decisions --- *)

Person(p, me) == people' = [people EXCEPT ![p] = me]

Look(p) ==
  /\ people[p].does = "away"
  /\ Person(p, [does |-> IF decided = << >> THEN "decides" ELSE "finishes", number |-> Len(decided)])
  /\ UNCHANGED <<log, runners, decided, again>>

LastAgain == IF again = << >> THEN 0 ELSE again[Len(again)].number

(* The newest decision is finished, whoever made it: one idempotent append, whose number is that of the decision. Its
   answer may be lost. *)
Finish(p) ==
  LET me == people[p] decision == decided[me.number] known == [me EXCEPT !.does = "decides"] IN
  /\ me.does = "finishes"
  /\ IF decision.action = "drop" \/ Mutation = "the decision before is not finished"
        \/ (me.number <= LastAgain /\ Mutation # "a retry is not known again")
     THEN Person(p, known) /\ again' = again
     ELSE again' = again \o <<[number |-> me.number, chosen |-> decision.chosen]>> /\ (Person(p, known) \/ Person(p, me))
  /\ UNCHANGED <<log, runners, decided>>

Settled(number) == UNION {decided[n].chosen : n \in 1..number}
Open(number) == (1..Len(Newest.held)) \ (IF Mutation = "settled records come back" THEN {} ELSE Settled(number))

Decide(p) ==
  LET me == people[p] IN
  /\ me.does = "decides" /\ me.number < DecisionsMax
  /\ IF me.number = Len(decided)
     THEN \E action \in {"retry", "drop"}, chosen \in (SUBSET Open(me.number)) \ {{}} :
            /\ decided' = decided \o <<[action |-> action, chosen |-> chosen]>>
            /\ Person(p, [does |-> "finishes", number |-> me.number + 1])
     ELSE decided' = decided /\ Person(p, Away)
  /\ UNCHANGED <<log, runners, again>>

Leave(p) == people[p].does # "away" /\ Person(p, Away) /\ UNCHANGED <<log, runners, decided, again>>

Next ==
  \E r \in Runners :
    \/ Claim(r) \/ Begin(r) \/ Find(r) \/ Commit(r) \/ Stop(r)
    \/ Look(r) \/ Finish(r) \/ Decide(r) \/ Leave(r)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Runners)

----------------------------------------------------------------------------
Held == {Newest.held[n] : n \in 1..Len(Newest.held)}
(* S2: what one attempt left out, every later one of its microbatch leaves out. *)
S2_LeftOutStays ==
  \A n \in 2..Len(log) : (log[n - 1].attempt # None /\ log[n].kind # "commit") => log[n - 1].attempt.left \subseteq log[n].attempt.left
(* S8: each record that is processed counts, or is in the quarantine, and once. *)
S8_CountedOrHeld ==
  /\ Newest.counted \union Held = 1..Newest.done
  /\ Newest.counted \intersect Held = {}
  /\ Cardinality(Held) = Len(Newest.held)
(* S8: only what is to blame is in the quarantine. *)
S8_OnlyPoison == Held \subseteq Poison
(* S8: a record of the quarantine is decided on once. *)
S8_DecidedOnce == \A m, n \in 1..Len(decided) : m # n => decided[m].chosen \intersect decided[n].chosen = {}
(* S8: what is retried is appended once, what is dropped never. *)
S8_RetriedOnce ==
  /\ \A m, n \in 1..Len(again) : m # n => again[m].number # again[n].number
  /\ \A n \in 1..Len(again) : decided[again[n].number] = [action |-> "retry", chosen |-> again[n].chosen]
(* S8: each decision but the newest is done. *)
S8_DecisionsAreDone ==
  \A n \in 1..(Len(decided) - 1) : decided[n].action = "drop" \/ \E m \in 1..Len(again) : again[m].number = n
=============================================================================
