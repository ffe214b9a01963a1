------------------------------ MODULE council ------------------------------
(* Who may own ONE ticket, as the council of `src/whence/core/ring/council` decides it (docs/ring.md, rules C1 to C12).

   Time is abstract. A voter's row for a seat ends only after every right from it has ended: rule C3 makes a voter wait so long that
   the lease is over on every clock, whatever the drift; rule C2 dates a lease by its poll, so an answer under way buys nothing later.

   A seat is <<incarnation, hand>>. Incarnation 1 is the founder's; the others are claimed, each by `Hands` processes at once: an
   incarnation in two hands would be an event id used twice.

   Council 1 is First, with its first voter as tie-break, and has two voters, or with Three three; council 2 is one of Next2[b],
   proposed under ballot b. Quorums of the two need not meet.

   Restarts: how often a voter may come back with its disk (C9). Leaving: owners may give their seats back (C12). Grants: owners of
   other tickets may grant any incarnation of this one to anybody, without asking a voter.
   Drop: rules that are left out, to see that TLC then finds a counterexample. *)
EXTENDS Integers, FiniteSets, Sequences, TLC

CONSTANTS v1, v2, v3, Three, MaxInc, Hands, Restarts, Leaving, Grants, Ballots, Drop

Voters == {v1, v2, v3}
First  == IF Three THEN <<v1, v2, v3>> ELSE <<v1, v2>>
Next2  == (1 :> <<v2, v3>>) @@ (2 :> <<v3, v1>>)
Incs   == 1..MaxInc
Seats  == {<<1, 1>>} \cup ((2..MaxInc) \X (1..Hands))
NoSeat == <<0, 0>>
None   == <<>>

VARIABLES
  st,       \* seat: "none", "prob", "owner", "dead"
  have,     \* seat: which vouches it holds, <<council, voter>>
  net,      \* answers under way: <<council, voter, seat>>
  released, \* seats whose owners have told the voters that they are out
  row,      \* voter: seats it vouches for now
  top,      \* voter: the newest seat it ever vouched for
  floor,    \* voter: incarnations below are over
  era,      \* voter: the newest incarnation whose claim it agreed to
  acks,     \* seat: who agreed to the claim, <<council, voter>>
  stage,    \* voter: the council it has begun, 0: none
  closed,   \* voter: it let the next council begin
  still,    \* voter: it stands still since it was asked (PREPARE)
  silent,   \* voter: it says nothing after a restart
  boots,    \* restarts so far
  bal, acc, \* voter: ballot promised, <<ballot, voters>> accepted
  tab,      \* ballot: what the asked voters said
  req,      \* ballot: the proposal, None or [q, val]
  accd,     \* ballot: who accepted
  second    \* the second council, as begun
owner == <<st, have, net, released>>
book  == <<row, top, floor, era>>
duty  == <<stage, closed, still, silent, boots>>
paxos == <<bal, acc, tab, req, accd, second>>
vars  == <<owner, book, acks, duty, paxos>>

Set(s) == {s[i] : i \in 1..Len(s)}
Quorum(s, h) == LET n == Cardinality(Set(s) \cap h) IN                                  \* C1
  /\ Len(s) > 0
  /\ \/ 2 * n > Len(s)
     \/ 2 * n = Len(s) /\ (s[1] \in h \/ "half" \in Drop)
Council(c) == IF c = 1 THEN First ELSE second
Backed(h) == \E c \in 1..2 : Quorum(Council(c), {v \in Voters : <<c, v>> \in h})
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Newer(s, t) == s[1] > t[1] \/ (s[1] = t[1] /\ s[2] >= t[2])
Top(S) == CHOOSE s \in S : \A t \in S : Newer(s, t)

Init ==
  /\ st = [s \in Seats |-> IF s[1] = 1 THEN "prob" ELSE "none"]
  /\ have = [s \in Seats |-> {}] /\ net = {} /\ released = {} /\ acks = [s \in Seats |-> {}]
  /\ row = [v \in Voters |-> {}] /\ top = [v \in Voters |-> NoSeat]
  /\ floor = [v \in Voters |-> IF v \in Set(First) THEN 1 ELSE 0]
  /\ era = floor
  /\ stage = [v \in Voters |-> IF v \in Set(First) THEN 1 ELSE 0]
  /\ closed = [v \in Voters |-> FALSE] /\ still = [v \in Voters |-> FALSE]
  /\ silent = [v \in Voters |-> FALSE] /\ boots = 0
  /\ bal = [v \in Voters |-> 0] /\ acc = [v \in Voters |-> None]
  /\ tab = [b \in Ballots |-> [v \in Voters |-> None]] /\ req = [b \in Ballots |-> None]
  /\ accd = [b \in Ballots |-> {}] /\ second = <<>>

\* `Voting.serving`: it may vouch and agree to claims (C7, C8, C9).
Serving(v) == stage[v] > 0 /\ ~silent[v] /\ ("closing" \in Drop \/ (~closed[v] /\ ~still[v]))

(* --- leases *)

Vouch(v, s) ==                                                                          \* C3, `Voting.on_sit`
  /\ Serving(v) /\ st[s] \in {"prob", "owner", "dead"}
  /\ "memory" \in Drop \/ (s[1] >= floor[v] /\ s[1] >= top[v][1])
  /\ "hand" \in Drop \/ s[1] # top[v][1] \/ s = top[v]
  /\ "exclusive" \in Drop \/ row[v] \subseteq {s}
  /\ row' = [row EXCEPT ![v] = IF "exclusive" \in Drop THEN @ \cup {s} ELSE {s}]
  /\ top' = [top EXCEPT ![v] = IF Newer(s, @) THEN s ELSE @]
  /\ net' = net \cup {<<stage[v], v, s>>}
  /\ UNCHANGED <<st, have, released, floor, era, acks, duty, paxos>>

Answer(m) ==                                                                            \* C2, `Seat.on_vouch`
  LET s == m[3] h == have[s] \cup {<<m[1], m[2]>>} IN
  /\ m \in net /\ net' = net \ {m}
  /\ IF st[s] = "dead" THEN UNCHANGED <<have, st>>
     ELSE /\ have' = [have EXCEPT ![s] = h]
          /\ st' = [st EXCEPT ![s] = IF Backed(h) THEN "owner" ELSE @]
  /\ UNCHANGED <<released, book, acks, duty, paxos>>

OwnerExpires(s, cv) ==          \* C2: a lease lost is lost for good
  LET h == have[s] \ {cv} IN
  /\ cv \in have[s]
  /\ have' = [have EXCEPT ![s] = h]
  /\ st' = [st EXCEPT ![s] = IF @ = "owner" /\ ~Backed(h) THEN "dead" ELSE @]
  /\ UNCHANGED <<net, released, book, acks, duty, paxos>>

\* Vouches that must be over before v's row ends: its own; and of the council before, those of who has closed it, because the row
\* that was handed over stands for them.
Before(v) == {<<c, u>> \in (1..2) \X Voters : u = v \/ (c < stage[v] /\ (closed[u] \/ stage[u] > c))}

VoterExpires(v, s) ==                                                                   \* C3
  /\ s \in row[v]
  /\ "drift" \in Drop \/ have[s] \cap Before(v) = {}
  /\ row' = [row EXCEPT ![v] = @ \ {s}]
  /\ net' = IF "drift" \in Drop THEN net ELSE {m \in net : ~(m[3] = s /\ <<m[1], m[2]>> \in Before(v))}
  /\ UNCHANGED <<st, have, released, top, floor, era, acks, duty, paxos>>

(* --- leaving *)

Leave(s) ==                     \* C12, `Seat.leave`: out first
  /\ Leaving /\ st[s] = "owner" /\ s \notin released
  /\ IF "out" \in Drop THEN UNCHANGED <<st, have>>
     ELSE st' = [st EXCEPT ![s] = "dead"] /\ have' = [have EXCEPT ![s] = {}]
  /\ released' = released \cup {s}
  /\ UNCHANGED <<net, book, acks, duty, paxos>>

Vacate(v, s) ==                 \* C12, `Voting.on_vacate`
  /\ s \in released /\ s \in row[v]
  /\ row' = [row EXCEPT ![v] = @ \ {s}]
  /\ floor' = [floor EXCEPT ![v] = Max({@, s[1] + 1})]
  /\ UNCHANGED <<owner, top, era, acks, duty, paxos>>

(* --- claims *)

ClaimAck(v, s) ==                                                                       \* C4, `Voting.on_claim`
  /\ Serving(v) /\ st[s] = "none"
  /\ s[1] > era[v] \/ ("era" \in Drop /\ s[1] >= era[v])
  /\ "living" \in Drop \/ row[v] = {}
  /\ era' = [era EXCEPT ![v] = s[1]]
  /\ floor' = [floor EXCEPT ![v] = Max({@, s[1]})]
  /\ acks' = [acks EXCEPT ![s] = @ \cup {<<stage[v], v>>}]
  /\ UNCHANGED <<owner, row, top, duty, paxos>>

Claimed(s) ==
  /\ st[s] = "none" /\ Backed(acks[s])
  /\ st' = [st EXCEPT ![s] = "prob"]
  /\ UNCHANGED <<have, net, released, book, acks, duty, paxos>>

Granted(s) ==                   \* `Seat.admit`: nobody votes on it; the newcomer owns what voters then vouch for (C3)
  /\ Grants /\ st[s] = "none" /\ s[1] > 1
  /\ st' = [st EXCEPT ![s] = "prob"]
  /\ UNCHANGED <<have, net, released, book, acks, duty, paxos>>

(* --- restarts *)

\* C9, `Voting.resume`: what is on the disk stays, the vouches that run are forgotten. That none of them runs may be on the disk.
Restart(v) ==
  /\ boots < Restarts /\ stage[v] > 0
  /\ boots' = boots + 1
  /\ row' = [row EXCEPT ![v] = {}]
  /\ still' = [still EXCEPT ![v] = FALSE]
  /\ \E s \in {TRUE, row[v] # {} \/ silent[v]} : silent' = [silent EXCEPT ![v] = s]
  /\ IF "disk" \in Drop
     THEN /\ top' = [top EXCEPT ![v] = NoSeat] /\ floor' = [floor EXCEPT ![v] = 0] /\ era' = [era EXCEPT ![v] = 0]
     ELSE UNCHANGED <<top, floor, era>>
  /\ UNCHANGED <<owner, acks, stage, closed, paxos>>

\* C9: the last vouch that it has forgotten is over on every clock. What a council's table has told it since is not forgotten.
Speak(v) ==
  /\ silent[v]
  /\ "silence" \in Drop \/ \A s \in Seats \ row[v] : have[s] \cap Before(v) = {}
  /\ silent' = [silent EXCEPT ![v] = FALSE]
  /\ net' = IF "silence" \in Drop THEN net ELSE {m \in net : m[3] \in row[v] \/ <<m[1], m[2]>> \notin Before(v)}
  /\ UNCHANGED <<st, have, released, book, acks, stage, closed, still, boots, paxos>>

(* --- the second council: one decree of Paxos among the voters of the first *)

Prepare(v, b) ==                                                                        \* C8, `Reform.on_prepare`
  /\ stage[v] = 1 /\ ~silent[v] /\ b > bal[v]
  /\ bal' = [bal EXCEPT ![v] = b]
  /\ still' = [still EXCEPT ![v] = ~closed[v]]
  /\ tab' = [tab EXCEPT ![b][v] = [row |-> row[v], top |-> top[v], floor |-> floor[v], era |-> era[v], acc |-> acc[v]]]
  /\ UNCHANGED <<owner, book, acks, stage, closed, silent, boots, acc, req, accd, second>>

Resume(v) ==                                                                            \* C8, `Voting.resumes`
  /\ still[v] /\ still' = [still EXCEPT ![v] = FALSE]
  /\ UNCHANGED <<owner, book, acks, stage, closed, silent, boots, paxos>>

Propose(b) ==                                                                           \* C8, `Reform.prepared`
  LET q == {v \in Voters : tab[b][v] # None}
      old == {tab[b][v].acc : v \in q} \ {None}
      best == CHOOSE a \in old : \A o \in old : o[1] <= a[1] IN
  /\ req[b] = None /\ Quorum(First, q)
  /\ req' = [req EXCEPT ![b] = [q |-> q, val |-> IF old = {} \/ "adopt" \in Drop THEN Next2[b] ELSE best[2]]]
  /\ UNCHANGED <<owner, book, acks, duty, bal, acc, tab, accd, second>>

Accept(v, b) ==                                                                         \* C8, `Reform.on_accept`
  /\ req[b] # None /\ stage[v] = 1 /\ bal[v] <= b
  /\ "void" \in Drop \/ (bal[v] = b /\ v \in req[b].q /\ (still[v] \/ closed[v]))
  /\ closed' = [closed EXCEPT ![v] = TRUE] /\ still' = [still EXCEPT ![v] = FALSE]
  /\ bal' = [bal EXCEPT ![v] = b]
  /\ acc' = [acc EXCEPT ![v] = <<b, req[b].val>>]
  /\ accd' = [accd EXCEPT ![b] = @ \cup {v}]
  /\ UNCHANGED <<owner, book, acks, stage, silent, boots, tab, req, second>>

Begins(v, rows, tops, floors, eras) ==
  /\ stage' = [stage EXCEPT ![v] = 2]
  /\ closed' = [closed EXCEPT ![v] = FALSE] /\ still' = [still EXCEPT ![v] = FALSE]
  /\ IF "table" \in Drop THEN row' = [row EXCEPT ![v] = {}] /\ UNCHANGED <<top, floor, era>>
     ELSE /\ row' = [row EXCEPT ![v] = rows]
          /\ top' = [top EXCEPT ![v] = Top(tops)]
          /\ floor' = [floor EXCEPT ![v] = Max(floors)]
          /\ era' = [era EXCEPT ![v] = Max(eras)]
  /\ UNCHANGED <<owner, acks, silent, boots, bal, acc, tab, req, accd>>

Begin(v, b) ==                  \* C7, `Reform.on_accepted` and `on_begin`: with the table of a quorum of the first
  LET q == req[b].q IN
  /\ req[b] # None /\ Quorum(First, accd[b]) /\ v \in Set(req[b].val) /\ stage[v] < 2
  /\ second' = IF second = <<>> THEN req[b].val ELSE second
  /\ Begins(v, UNION {tab[b][u].row : u \in q}, {tab[b][u].top : u \in q},
            {tab[b][u].floor : u \in q}, {tab[b][u].era : u \in q})

BeginLate(v, u) ==              \* `Reform._tell_begin`: a voter that has begun tells another how
  /\ stage[u] = 2 /\ ~silent[u] /\ stage[v] < 2 /\ v \in Set(second)
  /\ Begins(v, row[u], {top[u]}, {floor[u]}, {era[u]}) /\ UNCHANGED second

Next ==
  \/ \E v \in Voters, s \in Seats : Vouch(v, s) \/ VoterExpires(v, s) \/ ClaimAck(v, s) \/ Vacate(v, s)
  \/ \E m \in net : Answer(m)
  \/ \E s \in Seats : Claimed(s) \/ Granted(s) \/ Leave(s) \/ \E cv \in have[s] : OwnerExpires(s, cv)
  \/ \E v \in Voters : Restart(v) \/ Speak(v) \/ Resume(v)
  \/ \E v \in Voters, b \in Ballots : Prepare(v, b) \/ Accept(v, b) \/ Begin(v, b)
  \/ \E v, u \in Voters : BeginLate(v, u)
  \/ \E b \in Ballots : Propose(b)

Spec == Init /\ [][Next]_vars

OneOwner   == Cardinality({s \in Seats : st[s] = "owner"}) <= 1
\* A claim gives an incarnation to one process; a grant may give it to two, of which voters make one an owner.
Taken(s)   == st[s] \in {"owner", "dead"} \cup (IF Grants THEN {} ELSE {"prob"})
OneHand    == \A s, t \in Seats : (s[1] = t[1] /\ Taken(s) /\ Taken(t)) => s = t
Forward    == \A s, t \in Seats : (st[s] = "owner" /\ st[t] = "dead") => t[1] <= s[1]
OneCouncil == \A b, d \in Ballots : (Quorum(First, accd[b]) /\ Quorum(First, accd[d])) => req[b].val = req[d].val
=============================================================================
