----------------------------- MODULE AppendLog -----------------------------
(* A log of numbered objects that is written only by "create if absent", and trimmed from its start   *)
(* (spark_app/src/tidemill/store/log.py). Creates may arrive late, twice, or after their writer gave up *)
(* ("stalled writers"); answers may be lost; a trim may free the slot that a late create then fills.   *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Writers, SlotMax, AppendsMax, Mutation

Slots   == 1..SlotMax
Nothing == <<>>                      \* an empty slot
Nonces  == Writers \X (1..AppendsMax)

VARIABLES
  slots,     \* slot -> the nonce of the object in it, or Nothing
  floor,     \* the recorded floor: what is below it was, or may be, deleted
  entries,   \* history: slot -> the nonce of the entry that the log has there, whether it is trimmed by now or not
  requests,  \* creates that the store may still carry out: <<slot, nonce>>
  writers,   \* what each writer does and knows
  acked      \* nonces whose writers were told that they are durable

vars == <<slots, floor, entries, requests, writers, acked>>

Fresh == [does |-> "looks", known |-> 0, seen |-> Nothing, used |-> 0]

Init ==
  /\ slots = [s \in Slots |-> Nothing]
  /\ floor = 1
  /\ entries = [s \in Slots |-> Nothing]
  /\ requests = {}
  /\ writers = [w \in Writers |-> Fresh]
  /\ acked = {}

Last == CHOOSE s \in 0..SlotMax : (s = 0 \/ entries[s] # Nothing) /\ \A t \in Slots : t > s => entries[t] = Nothing

Set(w, state) == writers' = [writers EXCEPT ![w] = state]

(* `Log.newest`: the next number is probed; whoever fell behind the floor lists anew, for what it met may be void. *)
Follow(w) ==
  LET me == writers[w] next == me.known + 1
      jump == IF Last >= floor THEN Last ELSE 0
  IN /\ me.does = "looks" /\ next <= SlotMax
     /\ IF next < floor /\ Mutation # "a void object is followed"
        THEN jump > 0 /\ Set(w, [me EXCEPT !.known = jump, !.seen = slots[jump]])
        ELSE slots[next] # Nothing /\ Set(w, [me EXCEPT !.known = next, !.seen = slots[next]])
     /\ UNCHANGED <<slots, floor, entries, requests, acked>>

Send(w) ==
  LET me == writers[w] IN
  /\ me.does = "looks" /\ me.used < AppendsMax /\ me.known < SlotMax
  /\ requests' = requests \union {<<me.known + 1, <<w, me.used + 1>>>>}
  /\ Set(w, [me EXCEPT !.does = "waits", !.used = @ + 1])
  /\ UNCHANGED <<slots, floor, entries, acked>>

(* The store carries a create out, perhaps again, perhaps long after its writer is gone. *)
Create(request) ==
  LET slot == request[1] nonce == request[2] IN
  /\ slots[slot] = Nothing
  /\ slots' = [slots EXCEPT ![slot] = nonce]
  /\ entries' = IF slot >= floor THEN [entries EXCEPT ![slot] = nonce] ELSE entries
  /\ UNCHANGED <<floor, requests, writers, acked>>

Forget(request) == requests' = requests \ {request} /\ UNCHANGED <<slots, floor, entries, writers, acked>>

(* Every answer but success is settled by reading the slot: own nonce, another one's, or empty (then it is sent again). *)
Settle(w) ==
  LET me == writers[w] slot == me.known + 1 nonce == <<w, me.used>> IN
  /\ me.does = "waits"
  /\ CASE slots[slot] = nonce -> Set(w, [me EXCEPT !.does = "checks"]) /\ requests' = requests
       [] slots[slot] = Nothing -> requests' = requests \union {<<slot, nonce>>} /\ writers' = writers
       [] OTHER -> requests' = requests /\
            IF Mutation = "a collision is not noticed" THEN Set(w, [me EXCEPT !.does = "checks"])
            ELSE Set(w, [me EXCEPT !.does = "looks"])
  /\ UNCHANGED <<slots, floor, entries, acked>>

(* Asked after the create: what is at or above the floor was never trimmed, so it is an entry. *)
Check(w) ==
  LET me == writers[w] slot == me.known + 1 nonce == <<w, me.used>> IN
  /\ me.does = "checks"
  /\ IF floor > slot /\ Mutation # "the floor is not asked"
     THEN Set(w, [me EXCEPT !.does = "looks"]) /\ acked' = acked
     ELSE Set(w, [me EXCEPT !.does = "looks", !.known = slot, !.seen = nonce]) /\ acked' = acked \union {nonce}
  /\ UNCHANGED <<slots, floor, entries, requests>>

Crash(w) ==
  /\ Set(w, [Fresh EXCEPT !.used = writers[w].used])
  /\ UNCHANGED <<slots, floor, entries, requests, acked>>

(* A trim records its floor before the first deletion, and never takes the last two entries. *)
Trim ==
  /\ Last > floor + 1
  /\ \E f \in (floor + 1)..(Last - 1) :
       /\ floor' = f
  /\ UNCHANGED <<slots, entries, requests, writers, acked>>

Delete ==
  LET below == IF Mutation = "the floor is recorded last" THEN Last - 1 ELSE floor
      old == {s \in Slots : s < below /\ slots[s] # Nothing} IN
  /\ old # {}
  /\ LET s == CHOOSE s \in old : \A t \in old : s <= t IN slots' = [slots EXCEPT ![s] = Nothing]
  /\ UNCHANGED <<floor, entries, requests, writers, acked>>

Next ==
  \/ \E w \in Writers : Follow(w) \/ Send(w) \/ Settle(w) \/ Check(w) \/ Crash(w)
  \/ \E request \in requests : Create(request) \/ Forget(request)
  \/ Trim \/ Delete

Spec == Init /\ [][Next]_vars

(* Writers differ in nothing but their names. *)
Symmetry == Permutations(Writers)

----------------------------------------------------------------------------
(* S6: what was acknowledged is an entry of the log, once. *)
S6_AcknowledgedIsThere == \A n \in acked : Cardinality({s \in Slots : entries[s] = n}) = 1
(* S6: what has no answer is there once or not at all. *)
S6_OnceOrNotAtAll == \A n \in Nonces : Cardinality({s \in Slots : entries[s] = n}) <= 1
(* A slot has one entry for ever: a second object in it is void. *)
EntriesStay == [][\A s \in Slots : entries[s] # Nothing => entries'[s] = entries[s]]_vars
(* The log has no hole, so that followers come to its end by probing. *)
Dense == \A s \in Slots : entries[s] # Nothing => s = 1 \/ entries[s - 1] # Nothing
(* What a follower takes for the last entry is one. *)
FollowersSeeEntries == \A w \in Writers : writers[w].known = 0 \/ entries[writers[w].known] = writers[w].seen
(* The last two entries are never trimmed. *)
LastTwoStay == \A s \in {Last - 1, Last} \ {0} : Last > 0 /\ s > 0 => slots[s] = entries[s]
=============================================================================
