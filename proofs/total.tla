------------------------------- MODULE total -------------------------------
(* Total order, the core (docs/total.md, rules T1 to T8), for three voters of one council.

   Three tenures: u1 and w1 have owners from the start; u1's owner may die, which ends its lease, and u2 is the next
   tenure of its ticket. pub[o] are the stamps of o's frames. Frames that a dead owner sent may arrive at any time. A
   member passes a stamp with whatever reports it has of those ever sent; `passed` is what members have passed, and with
   which frames. They deliver by stamp, so they agree if what they pass agrees.

   Drop: rules that are left out, to see that TLC then finds two that do not agree. *)
EXTENDS Integers, FiniteSets, Sequences, TLC

CONSTANTS v1, v2, v3, MaxL, MaxReports, Ballots, Tenures, Drop

Voters    == {v1, v2, v3}
Quorum(q) == 2 * Cardinality(q) > Cardinality(Voters)
NoEnd     == <<0, 0>>
Max(S)    == CHOOSE x \in S : \A y \in S : y <= x

VARIABLES
  st,      \* tenure: "none", "open" or "dead"
  clk,     \* tenure: its owner's clock
  pub,     \* tenure: stamps of its frames
  has,     \* voter, tenure: frames held
  M,       \* voter: its clock
  vou,     \* voter: tenures that it has vouched for
  vouM,    \* voter: its clock when it vouched for u2; -1: not yet
  ack,     \* voter, tenure: what it has acknowledged
  kp,      \* voter: the closing of u1 that it has promised
  acc,     \* voter: <<ballot, last>>, the end of u1 that it has accepted
  prom,    \* ballot, voter: what it told when it promised
  prop,    \* ballot: the end proposed; -1: none
  reps,    \* reports sent
  passed   \* <<stamp, frames up to there>>
vars == <<st, clk, pub, has, M, vou, vouM, ack, kp, acc, prom, prop, reps, passed>>

Init ==
  /\ st = [o \in Tenures |-> IF o = "u2" THEN "none" ELSE "open"]
  /\ clk = [o \in Tenures |-> 0] /\ pub = [o \in Tenures |-> <<>>]
  /\ has = [v \in Voters |-> [o \in Tenures |-> 0]] /\ M = [v \in Voters |-> 0]
  /\ vou = [v \in Voters |-> {"u1", "w1"} \cap Tenures] /\ vouM = [v \in Voters |-> -1]
  /\ ack = [v \in Voters |-> [o \in Tenures |-> 0]]
  /\ kp = [v \in Voters |-> 0] /\ acc = [v \in Voters |-> NoEnd]
  /\ prom = [b \in Ballots |-> [v \in Voters |-> <<>>]] /\ prop = [b \in Ballots |-> -1]
  /\ reps = {} /\ passed = {}

(* --- owners *)
Publish(o) ==                                   \* T1
  /\ st[o] = "open" /\ Len(pub[o]) < 1 /\ clk[o] < MaxL
  /\ clk' = [clk EXCEPT ![o] = @ + 1]
  /\ pub' = [pub EXCEPT ![o] = Append(@, clk[o] + 1)]
  /\ UNCHANGED <<st, has, M, vou, vouM, ack, kp, acc, prom, prop, reps, passed>>

Tick(o) ==                                      \* T4: its clock goes to the highest stamp there is
  LET top == Max({0} \cup UNION {{pub[p][i] : i \in 1..Len(pub[p])} : p \in Tenures}) IN
  /\ st[o] = "open" /\ clk[o] < top
  /\ clk' = [clk EXCEPT ![o] = top]
  /\ UNCHANGED <<st, pub, has, M, vou, vouM, ack, kp, acc, prom, prop, reps, passed>>

Die ==
  /\ st["u1"] = "open" /\ st' = [st EXCEPT !["u1"] = "dead"]
  /\ UNCHANGED <<clk, pub, has, M, vou, vouM, ack, kp, acc, prom, prop, reps, passed>>

Own(q) ==                                       \* T2
  /\ "u2" \in Tenures /\ st["u2"] = "none" /\ Quorum(q) /\ \A v \in q : vouM[v] >= 0
  /\ st' = [st EXCEPT !["u2"] = "open"]
  /\ clk' = [clk EXCEPT !["u2"] = IF "start" \in Drop THEN 0 ELSE Max({vouM[v] : v \in q})]
  /\ UNCHANGED <<pub, has, M, vou, vouM, ack, kp, acc, prom, prop, reps, passed>>

(* --- voters *)
Get(v, o) ==
  /\ has[v][o] < Len(pub[o])
  /\ has' = [has EXCEPT ![v][o] = @ + 1]
  /\ M' = [M EXCEPT ![v] = Max({@, pub[o][has[v][o] + 1]})]
  /\ UNCHANGED <<st, clk, pub, vou, vouM, ack, kp, acc, prom, prop, reps, passed>>

Vouch(v) ==                                     \* C3: u1's lease is over
  /\ "u2" \in Tenures /\ st["u1"] = "dead" /\ vouM[v] = -1
  /\ vouM' = [vouM EXCEPT ![v] = M[v]]
  /\ vou' = [vou EXCEPT ![v] = IF "vouched" \in Drop THEN @ ELSE @ \cup {"u2"}]
  /\ UNCHANGED <<st, clk, pub, has, M, ack, kp, acc, prom, prop, reps, passed>>

Report(v) ==                                    \* T3, T5
  LET a == [o \in Tenures |-> IF o = "u1" /\ kp[v] > 0 /\ "promise" \notin Drop THEN ack[v][o] ELSE has[v][o]]
      r == [v |-> v, M |-> M[v], V |-> vou[v], a |-> a, e |-> acc[v]] IN
  /\ r \notin reps /\ Cardinality(reps) < MaxReports
  /\ ack' = [ack EXCEPT ![v] = a]
  /\ reps' = reps \cup {r}
  /\ UNCHANGED <<st, clk, pub, has, M, vou, vouM, kp, acc, prom, prop, passed>>

Promise(v, b) ==                                \* T8
  /\ st["u1"] = "dead" /\ b > kp[v]
  /\ kp' = [kp EXCEPT ![v] = b]
  /\ prom' = [prom EXCEPT ![b][v] = <<ack[v]["u1"], acc[v]>>]
  /\ UNCHANGED <<st, clk, pub, has, M, vou, vouM, ack, acc, prop, reps, passed>>

Propose(b) ==
  LET q    == {v \in Voters : prom[b][v] # <<>>}
      ends == {prom[b][v][2] : v \in q} \ {NoEnd}
      best == CHOOSE e \in ends : \A f \in ends : f[1] <= e[1]
      most == Max({prom[b][v][1] : v \in q}) IN
  /\ prop[b] = -1 /\ q # {} /\ ("one" \in Drop \/ Quorum(q))
  /\ prop' = [prop EXCEPT ![b] = IF ends # {} /\ "adopt" \notin Drop THEN best[2]
                                 ELSE IF "most" \in Drop THEN 0 ELSE most]
  /\ UNCHANGED <<st, clk, pub, has, M, vou, vouM, ack, kp, acc, prom, reps, passed>>

Accept(v, b) ==
  /\ prop[b] >= 0 /\ kp[v] <= b /\ acc[v][1] < b /\ has[v]["u1"] >= prop[b]
  /\ kp' = [kp EXCEPT ![v] = b] /\ acc' = [acc EXCEPT ![v] = <<b, prop[b]>>]
  /\ UNCHANGED <<st, clk, pub, has, M, vou, vouM, ack, prom, prop, reps, passed>>

(* --- a member *)
Decided(o, n) ==                                \* T6
  \/ Quorum({v \in Voters : \E r \in reps : r.v = v /\ r.a[o] >= n})
  \/ "quorum" \in Drop /\ \E r \in reps : r.a[o] >= n
Ends == {e \in Ballots \X (0..1) : Quorum({v \in Voters : \E r \in reps : r.v = v /\ r.e = e})}
Below(o, s) == {n \in 1..Len(pub[o]) : pub[o][n] <= s}
Known(o, s) ==          \* T7: closed, or its clock is beyond, and what it published up to there is decided
  \/ o = "u1" /\ Ends # {}
  \/ clk[o] >= s /\ st[o] # "none" /\ \A n \in Below(o, s) : Decided(o, n)
In(o, n) == ~(o = "u1" /\ Ends # {}) \/ \E e \in Ends : n <= e[2]

Pass(s) ==
  /\ \E R \in SUBSET reps :
       /\ Quorum({r.v : r \in R}) /\ Cardinality(R) = Cardinality({r.v : r \in R})
       /\ \A r \in R : r.M >= s
       /\ LET K == UNION {r.V : r \in R} IN
            /\ \A o \in K : Known(o, s)
            /\ passed' = passed \cup {<<s, {<<o, n>> \in K \X (1..1) : n \in Below(o, s) /\ In(o, n)}>>}
  /\ UNCHANGED <<st, clk, pub, has, M, vou, vouM, ack, kp, acc, prom, prop, reps>>

Next ==
  \/ Die
  \/ \E o \in Tenures : Publish(o) \/ Tick(o) \/ \E v \in Voters : Get(v, o)
  \/ \E v \in Voters : Vouch(v) \/ Report(v) \/ \E b \in Ballots : Promise(v, b) \/ Accept(v, b)
  \/ \E b \in Ballots : Propose(b)
  \/ \E q \in SUBSET Voters : Own(q)
  \/ \E s \in 1..MaxL : Pass(s)

Spec == Init /\ [][Next]_vars

Upto(F, s) == {f \in F : pub[f[1]][f[2]] <= s}
Agree  == \A p, q \in passed : p[1] <= q[1] => Upto(q[2], p[1]) = p[2]
NoLate == \A p \in passed : \A o \in Tenures \ {"u1"} : \A n \in Below(o, p[1]) : <<o, n>> \in p[2]
OneEnd == \A e, f \in Ends : e[2] = f[2]
=============================================================================
