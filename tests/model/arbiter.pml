/* How waits for memory begin, are served and end: the protocol of pool/base/wait, src/core/pressure and
 * src/core/arbiter. README.md beside this file tells what is modelled, what is claimed, and what each switch breaks.
 *
 * One process per thread of a task, one mover. A step under a lock is one d_step; what the code does without a lock
 * (free, then look for waiters) is one step each, so that everything may come between. Each inline that is named in
 * README.md's table of transitions is one transition of the code.
 */
#define TASKS 3  /* task 0 has the highest priority, task 2 the lowest */
#define PLACES 2
#ifndef BUDGET_0
#define BUDGET_0 2
#endif
#ifndef BUDGET_1
#define BUDGET_1 1
#endif
#ifndef REQUESTS
#define REQUESTS 2 /* a task needs that many grants, held at once or passed on, then it finishes; */
#endif
#ifndef REQUESTS_1
#define REQUESTS_1 REQUESTS /* task 1 may need fewer, for a smaller search */
#endif
#define NEEDS(t) ((t) == 1 -> REQUESTS_1 : REQUESTS)
#ifndef PASSES
#define PASSES 1 /* 16 in the code: so often is the oldest passed over before it is a barrier */
#endif
#ifndef ASKS
#define ASKS 2 /* 500 in the code: so often is a task asked without a grant before it is refused */
#endif

#define NOBODY 255
#define BUDGET(p) ((p) == 0 -> BUDGET_0 : BUDGET_1)
#define FREE(p) (BUDGET(p) - committed[p])
#define HELD(t, p) held[(t) * PLACES + (p)]
#define HOLDS(t) (HELD(t, 0) + HELD(t, 1))
#define FITS(t) (FREE(want_place[t]) >= want_units[t])

mtype = { NOTHING, GRANTED, RETRY, SPLIT, REFUSED, CANCELED, TURN };

/* A place: one gate; what lies there sealed or marked spillable, and unmapped, and what of it is being moved out. */
byte committed[PLACES];
byte sealed[PLACES];
byte leaving[PLACES];
byte held[TASKS * PLACES]; /* what a task holds that cannot be evicted: neither sealed nor marked, mapped or raw */

/* A task and its wait. It waits in one request at a time (queue), or for its turn (parked). */
byte want_place[TASKS];
byte want_units[TASKS];
mtype ended[TASKS] = NOTHING; /* how the wait ended; taken by the thread when it wakes */
bool waiting[TASKS];
bool parked[TASKS];
bool blocked[TASKS]; /* arbiter: the thread sleeps, or is about to */
bool finished[TASKS];
bool asked[TASKS]; /* since it last got further than it was */
byte asks[TASKS];
byte held_asked[TASKS]; /* what it held when it was asked last */
byte lacked[TASKS]; /* what it wanted then */
byte queue[TASKS]; /* who waits, oldest first */
byte queued;
byte passed[TASKS];

/* Who is between a step and the look that must follow it. Not part of the code: claims are stated with it. */
byte looks[PLACES];
byte kicks[PLACES];

#ifdef HELPER
/* A second thread of one task, which also waits outside the library (block_begin, block_end). */
bool helper_attached = true;
bool helper_blocked;
#define HELPER_RUNS(t) ((t) == HELPER && helper_attached && !helper_blocked)
#define MAY_LEAVE(t) ((t) != HELPER || !helper_attached) /* it joins its helper first */
#else
#define HELPER_RUNS(t) false
#define MAY_LEAVE(t) true
#endif

/* What the arbiter counts. A thread whose wait has ended runs, even while it has not woken yet. */
#ifdef BREAK_LATE_UNBLOCK
#define THREAD_RUNS(t) (!blocked[t])
#elif defined(BREAK_PARK_RUNS)
#define THREAD_RUNS(t) (!(blocked[t] && waiting[t]))
#else
#define THREAD_RUNS(t) (!(blocked[t] && (waiting[t] || parked[t])))
#endif
#define RUNS(t) (!finished[t] && (THREAD_RUNS(t) || HELPER_RUNS(t)))

/* What a look without the lock sees. Without the fence behind the enqueue, a count may be seen late. */
#ifdef BREAK_ENQUEUE_FENCE
bool unseen[TASKS];
#define SEEN(t) (!unseen[t])
#define enqueue_fence(t) unseen[t] = true
#else
#define SEEN(t) true
#define enqueue_fence(t) skip
#endif
#ifdef BREAK_RELEASE_FENCE
#define LOOKED(p) saw[p]
#else
#define LOOKED(p) BUSY(p)
#endif
#ifdef CANCEL
bool shut;
#define SHUT shut
#else
#define SHUT false
#endif
#define WAITS_AT(t, p) (waiting[t] && want_place[t] == (p))
#define PARKS_AT(t, p) (parked[t] && want_place[t] == (p))
#define QUEUED_AT(p) (WAITS_AT(0, p) || WAITS_AT(1, p) || WAITS_AT(2, p))
#define SEEN_AT(t, p) ((WAITS_AT(t, p) || PARKS_AT(t, p)) && SEEN(t))
#define BUSY(p) (SEEN_AT(0, p) || SEEN_AT(1, p) || SEEN_AT(2, p))
#define NEED(t, p) (WAITS_AT(t, p) -> want_units[t] : 0)
#define DEMAND(p) (NEED(0, p) + NEED(1, p) + NEED(2, p))
#define ALL_FINISHED (finished[0] && finished[1] && finished[2])

hidden byte i, j, w, front, chosen, place;
hidden byte stop, served;

/* ---- claims that hold after every step ---- */

inline claim()
{
    place = 0;
    do
    :: place < PLACES ->
        assert(committed[place] <= BUDGET(place));
        assert(committed[place] >= HELD(0, place) + HELD(1, place) + HELD(2, place) + sealed[place]);
        if
        :: looks[place] == 0 ->
            /* No lost wake-up: nobody waits whose request fits, unless behind a barrier. */
            stop = false;
            front = NOBODY;
            i = 0;
            do
            :: i < queued ->
                w = queue[i];
                if
                :: want_place[w] != place -> skip
                :: else ->
                    assert(stop || !FITS(w)); /* lost wake-up */
                    if
                    :: front == NOBODY -> front = w; stop = passed[w] >= PASSES
                    :: else -> skip
                    fi
                fi;
                i++
            :: else -> break
            od;
            /* Nor is anything left lying that could be evicted for those who wait. */
            assert(kicks[place] || sealed[place] == 0 || DEMAND(place) <= FREE(place) + leaving[place])
        :: else -> skip
        fi;
        place++
    :: else -> break
    od;
    place = 0
}

/* ---- the wait lock ---- */

/* Check and charge are one step: the gate. A task got further, and may be asked anew, only when it has what it lacked,
 * or more than it held when it was asked: else two tasks, or one that needs too much, get and give back the same for
 * ever. */
inline grant(t)
{
    committed[want_place[t]] = committed[want_place[t]] + want_units[t];
    HELD(t, want_place[t]) = HELD(t, want_place[t]) + want_units[t];
    if
#ifndef BREAK_ANY_GRANT_COUNTS
    :: asked[t] && want_units[t] < lacked[t] && HOLDS(t) <= held_asked[t] -> skip
#endif
    :: else -> held_asked[t] = 0; lacked[t] = 0; asked[t] = false; asks[t] = 0
    fi
}

/* The wait of task t ends, exactly once. */
inline finish_waiter(t, how)
{
    assert(waiting[t] && ended[t] == NOTHING);
    waiting[t] = false;
    ended[t] = how;
    passed[t] = 0;
    j = 0;
    do
    :: queue[j] != t -> j++
    :: else -> break
    od;
    queued--;
    do
    :: j < queued -> queue[j] = queue[j + 1]; j++
    :: else -> break
    od;
    queue[queued] = 0;
    if
    :: how == GRANTED -> grant(t)
    :: else -> skip
    fi
}

/* The most important task parked for p goes on when its bytes are free and nobody is queued for them. One at a time:
 * what is free is free for the first only. */
inline wake_satisfied(p)
{
    w = 0;
    do
    :: w < TASKS ->
        if
        :: PARKS_AT(w, p) && FITS(w) && !QUEUED_AT(p) ->
            parked[w] = false;
            ended[w] = TURN;
            break
        :: else -> skip
        fi;
        w++
    :: else -> break
    od
}

/* All who wait at p, oldest first; who fits gets it at once. Nobody is attempted behind a barrier. */
inline attempt_all(p)
{
    stop = false;
    front = NOBODY;
    i = 0;
    do
    :: i < queued && !stop ->
        w = queue[i];
        if
        :: want_place[w] != p -> i++
        :: want_place[w] == p && FITS(w) ->
            finish_waiter(w, GRANTED);
            served = true;
            if
            :: front != NOBODY ->
                assert(passed[front] < PASSES); /* nobody is passed over more often */
                passed[front]++;
#ifndef BREAK_BARRIER
                stop = passed[front] >= PASSES
#endif
            :: else -> skip
            fi
        :: else ->
            if
            :: front == NOBODY ->
                front = w;
#ifndef BREAK_BARRIER
                stop = passed[w] >= PASSES
#endif
            :: else -> skip
            fi;
#ifdef BREAK_WAKE_FIRST
            stop = true;
#endif
            i++
        fi
    :: else -> break
    od;
    wake_satisfied(p)
}

/* ---- the pressure lock ---- */

/* Starts as many evictions as the demand lacks. */
inline pump(p)
{
    do
    :: sealed[p] > 0 && DEMAND(p) > FREE(p) + leaving[p] -> sealed[p]--; leaving[p]++
    :: else -> break
    od
}

/* ---- the arbiter's lock ---- */

inline ask(t, how)
{
    asked[t] = true;
    asks[t]++;
    held_asked[t] = HOLDS(t);
    lacked[t] = want_units[t];
    place = want_place[t];
    if
    :: asks[t] > ASKS ->
#ifdef OBEY
        assert(false); /* who obeys is never refused */
#endif
        finish_waiter(t, REFUSED)
    :: else -> finish_waiter(t, how)
    fi;
#ifndef BREAK_END_UNSEEN
    attempt_all(place) /* who waited behind it may have waited only for it */
#endif
}

/* The most important of those that are parked goes on. */
inline give_turn()
{
    chosen = NOBODY;
    w = 0;
    do
    :: w < TASKS && chosen == NOBODY ->
        if
        :: parked[w] -> chosen = w; parked[w] = false; ended[w] = TURN
        :: else -> skip
        fi;
        w++
    :: else -> break
    od
}

/* Nobody runs, nothing is on its way, somebody waits: one step of the ladder. */
inline arbiter_look()
{
    if
    :: RUNS(0) || RUNS(1) || RUNS(2) -> skip
#ifdef BREAK_PARKED_UNCOUNTED
    :: queued == 0 -> skip
#else
    :: queued == 0 && !parked[0] && !parked[1] && !parked[2] -> skip
#endif
    :: (QUEUED_AT(0) && leaving[0]) || (QUEUED_AT(1) && leaving[1]) -> skip
    :: else ->
        /* lift_barriers */
        served = false;
#ifndef BREAK_BARRIER_STAYS
        passed[0] = 0; passed[1] = 0; passed[2] = 0;
#endif
        attempt_all(0);
        attempt_all(1);
        chosen = NOBODY;
        if
        :: served || RUNS(0) || RUNS(1) || RUNS(2) -> skip
        :: else ->
            /* ask_retry: the lowest that holds something and was not asked yet */
            w = TASKS;
            do
            :: w > 0 && chosen == NOBODY ->
                w--;
                if
#ifdef BREAK_ASK_AGAIN
                :: waiting[w] && HOLDS(w) > 0 -> chosen = w
#else
                :: waiting[w] && HOLDS(w) > 0 && !asked[w] -> chosen = w
#endif
                :: else -> skip
                fi
            :: else -> break
            od;
            if
            :: chosen != NOBODY -> ask(chosen, RETRY)
            :: else ->
                give_turn();
                if
                :: chosen != NOBODY -> skip
                :: else ->
                    /* ask_split: the highest that waits */
                    w = 0;
                    do
                    :: w < TASKS && chosen == NOBODY ->
                        if
                        :: waiting[w] -> chosen = w
                        :: else -> skip
                        fi;
                        w++
                    :: else -> break
                    od;
                    if
                    :: chosen != NOBODY ->
#ifdef OBEY
                        assert(false); /* nor split: what it needs fits once the others have given back */
#endif
                        ask(chosen, SPLIT)
                    :: else -> skip
                    fi
                fi
            fi
        fi
    fi
}

/* ---- steps without a lock: free, then look ---- */

/* Free, then look: two steps. Without a fence the look may be done before the free is seen. */
inline release_free(t)
{
    d_step {
        committed[0] = committed[0] - HELD(t, 0);
        committed[1] = committed[1] - HELD(t, 1);
        HELD(t, 0) = 0;
        HELD(t, 1) = 0;
        looks[0]++; looks[1]++;
        claim()
    }
}

#ifdef BREAK_RELEASE_FENCE
inline look_early()
{
    d_step { saw[0] = BUSY(0); saw[1] = BUSY(1) }
}
#else
#define look_early() skip
#endif

inline release_look(t)
{
    d_step {
        if
        :: LOOKED(0) -> attempt_all(0)
        :: else -> skip
        fi;
        if
        :: LOOKED(1) -> attempt_all(1)
        :: else -> skip
        fi;
        looks[0]--; looks[1]--;
#ifdef BREAK_RELEASE_FENCE
        saw[0] = false; saw[1] = false;
#endif
        claim()
    }
}

/* What was held can be evicted from now on; then a look for those whom that would help. */
inline seal(t)
{
    d_step {
        sealed[0] = sealed[0] + HELD(t, 0);
        sealed[1] = sealed[1] + HELD(t, 1);
        HELD(t, 0) = 0;
        HELD(t, 1) = 0;
        kicks[0]++; kicks[1]++;
        claim()
    }
}

inline seal_kick()
{
    d_step {
#ifndef BREAK_SEAL_SILENT
        if
        :: BUSY(0) -> pump(0)
        :: else -> skip
        fi;
        if
        :: BUSY(1) -> pump(1)
        :: else -> skip
        fi;
#endif
        kicks[0]--; kicks[1]--;
        claim()
    }
}

proctype mover()
{
    byte p;
end_idle:
    do
    :: d_step { leaving[0] + leaving[1] > 0 -> p = (leaving[0] > 0 -> 0 : 1);
            /* move_free */
            committed[p]--;
            looks[p]++;
            claim()
        };
        d_step {
            /* move_look */
            if
            :: BUSY(p) -> attempt_all(p)
            :: else -> skip
            fi;
            looks[p]--; kicks[p]++;
            claim()
        };
        d_step {
            /* move_done */
            leaving[p]--;
            pump(p);
            kicks[p]--;
#ifndef BREAK_MOVE_UNCHECKED
            arbiter_look();
#endif
            claim()
        };
        p = 0
    od
}

/* ---- a task's thread ---- */

/* Anything that could fit an empty place; of a task that obeys, what fits beside what it holds itself. */
#ifdef OBEY
#define MAY_WANT(t, p, n) (HELD(t, p) + (n) <= BUDGET(p))
#else
#define MAY_WANT(t, p, n) ((n) <= BUDGET(p))
#endif
inline choose(t)
{
    if
    :: MAY_WANT(t, 0, 1) -> want_place[t] = 0; want_units[t] = 1
    :: MAY_WANT(t, 0, 2) -> want_place[t] = 0; want_units[t] = 2
    :: MAY_WANT(t, 1, 1) -> want_place[t] = 1; want_units[t] = 1
    :: MAY_WANT(t, 1, 2) -> want_place[t] = 1; want_units[t] = 2
    fi
}

/* arbiter_block: the thread sleeps from here on, unless its wait has ended meanwhile. */
inline block(t)
{
    d_step {
        if
        :: waiting[t] || parked[t] ->
            blocked[t] = true;
            arbiter_look()
        :: else -> skip
        fi;
        claim()
    }
}

inline wake(t)
{
    blocked[t] = false;
    how = ended[t];
    ended[t] = NOTHING
}

proctype task(byte t)
{
    byte steps; /* grants so far */
    mtype how = NOTHING;
#ifdef BREAK_RELEASE_FENCE
    bool saw[2];
#endif

ready:
    if
    :: atomic { steps < NEEDS(t) -> choose(t); goto again }
#ifdef BREAK_RELEASE_FENCE
    :: HOLDS(t) > 0 -> look_early(); release_free(t); goto look
#else
    :: atomic { HOLDS(t) > 0 -> release_free(t); goto look }
#endif
    :: atomic { HOLDS(t) > 0 -> seal(t); goto kick }
    :: HOLDS(t) == 0 && steps > 0 && MAY_LEAVE(t) -> goto leave
    fi;

look:
    atomic { release_look(t); goto ready };
kick:
    atomic { seal_kick(); goto ready };

again:
    atomic {
        if
        :: !QUEUED_AT(want_place[t]) && FITS(t) -> /* request_try */
#ifdef BREAK_GATE
            goto take;
#endif
            d_step { grant(t); claim() };
            goto granted
        :: else -> /* wait_enqueue: in the queue, a fence, then a look, under the wait lock. What others free and look
                    * at without it meanwhile is as good as before or after both: the fence makes the queue seen. */
            d_step {
                waiting[t] = true;
                queue[queued] = t;
                queued++;
                kicks[want_place[t]]++;
                enqueue_fence(t);
                if
                :: SHUT -> finish_waiter(t, CANCELED)
                :: else -> attempt_all(want_place[t])
                fi;
                claim()
            }
        fi
    };
#ifdef BREAK_ENQUEUE_FENCE
    unseen[t] = false;
#endif
    d_step {
        kicks[want_place[t]]--;
        pump(want_place[t]);
        claim()
    };
    block(t);
    atomic {
        !waiting[t] -> wake(t);
        if
        :: how == GRANTED -> goto granted
        :: how == SPLIT ->
            how = NOTHING;
            want_units[t] = 1;
            goto again
        :: how == REFUSED || how == CANCELED -> goto give_up
        /* It gives back what it can, and needs again what it gave back. */
        :: how == RETRY && HOLDS(t) > 0 -> how = NOTHING; steps = 0; look_early(); release_free(t)
        :: how == RETRY && HOLDS(t) > 0 -> how = NOTHING; steps = 0; seal(t); goto kick_and_park
#ifndef OBEY
        :: how == RETRY -> how = NOTHING; goto park
#endif
        fi
    };
    release_look(t);
    goto park;
kick_and_park:
    atomic { seal_kick() };

park:
    atomic {
        d_step { /* wait_turn: parked, a fence, then a look */
            parked[t] = true;
            if
            :: SHUT -> parked[t] = false; ended[t] = CANCELED
            :: else -> wake_satisfied(want_place[t])
            fi;
            claim()
        }
    };
    block(t);
    atomic {
        !parked[t] -> wake(t);
        if
        :: how == CANCELED -> goto give_up
        :: how == TURN && steps == 0 -> how = NOTHING; want_place[t] = 0; want_units[t] = 0; goto ready
        :: how == TURN && steps > 0 -> how = NOTHING; goto again
        fi
    };

#ifdef BREAK_GATE
take:
    atomic { d_step { grant(t); claim() } };
#endif
granted:
    atomic { how = NOTHING; want_place[t] = 0; want_units[t] = 0; steps++; goto ready };
give_up:
    atomic { how = NOTHING; want_place[t] = 0; want_units[t] = 0; steps = NEEDS(t); goto ready };

leave:
    atomic {
        d_step { /* task_destroy: the most important that is parked waits for just that */
            steps = 0;
            finished[t] = true;
            give_turn();
#ifndef BREAK_FINISH_UNCHECKED
            arbiter_look();
#endif
            claim()
        }
    }
}

#ifdef HELPER
proctype helper()
{
    bool been_outside;
#ifdef BREAK_RELEASE_FENCE
    bool saw[2];
#endif
    do
    :: atomic { HOLDS(HELPER) > 0 -> look_early(); release_free(HELPER) };
        release_look(HELPER)
    :: d_step { !been_outside -> been_outside = true; helper_blocked = true; arbiter_look(); claim() }; /* block_begin */
        helper_blocked = false /* block_end */
    :: d_step { /* task_detach */
            helper_attached = false;
            been_outside = false;
#ifndef BREAK_DETACH_UNCHECKED
            arbiter_look();
#endif
            claim()
        };
        break
    od
}
#endif

#ifdef CANCEL
/* cancel_wait, for a token, a task or a deadline; those behind a barrier that leaves so are attempted. */
inline cancel_wait(t)
{
    if
    :: parked[t] -> parked[t] = false; ended[t] = CANCELED
    :: else ->
#ifndef BREAK_DOUBLE_END
        if
        :: waiting[t] ->
#endif
            finish_waiter(t, CANCELED);
#ifndef BREAK_END_UNSEEN
            attempt_all(want_place[t])
#endif
#ifndef BREAK_DOUBLE_END
        :: else -> skip
        fi
#endif
    fi
}

/* Once, at any time, for one task or as a shutdown for all. */
proctype canceller()
{
    byte t;
    if
    :: t = 0
    :: t = 1
    :: t = 2
    :: goto shut_down
    fi;
    waiting[t] || parked[t] || finished[t];
    d_step {
        if
        :: finished[t] -> skip
        :: else -> cancel_wait(t)
        fi;
        t = 0;
        claim()
    };
    goto done;
shut_down:
    atomic { d_step {
        shut = true;
        front = 0;
        do
        :: front < TASKS ->
            if
            :: parked[front] -> parked[front] = false; ended[front] = CANCELED
            :: waiting[front] -> finish_waiter(front, CANCELED)
            :: else -> skip
            fi;
            front++
        :: else -> break
        od;
        claim()
    } };
done:
    skip
}
#endif

init
{
    atomic {
        run mover();
        run task(0);
        run task(1);
        run task(2);
#ifdef HELPER
        run helper();
#endif
#ifdef CANCEL
        run canceller();
#endif
    }
}

ltl all_finish { <> ALL_FINISHED }
