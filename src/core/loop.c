/* The descriptor for event loops: see loop.h. Neighbours: ticket.c and ticket_call.c tell of ends and of looks at them,
 * the mover and the waits of what is to do, progress.c does it. */
#include "src/core/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "src/core/manager.h"

void spw__loop_init(struct spw_manager *manager)
{
    struct spw__loop *loop = &manager->loop;
    spw__mutex_init(&loop->lock, SPW__RANK_LOOP);
    atomic_init(&loop->fd, -1);
    loop->armed_ns = UINT64_MAX;
}

static void close_open(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

void spw__loop_finish(struct spw_manager *manager)
{
    struct spw__loop *loop = &manager->loop;
    const int fd = atomic_exchange(&loop->fd, -1);
    if (fd >= 0) {
        (void)close(fd);
        (void)close(loop->event_fd);
        (void)close(loop->timer_fd);
    }
    spw__mutex_finish(&loop->lock);
}

/* Whether spw_progress would do something now. It serves no reclaimers where there are none. */
static bool has_work(struct spw_manager *manager, uint64_t mover_due_ns)
{
    uint32_t reclaimers = 0;
    if (mover_due_ns == 0 || !manager->waits.drive || atomic_load(&manager->reclaim.wanted) == 0)
        return mover_due_ns == 0;
    for (unsigned tier = 0; tier < SPW__MEMORY_TIERS; tier++)
        reclaimers += atomic_load(&manager->reclaim.n[tier]);
    return reclaimers != 0;
}

/* When spw_progress has something to do for a wait. A manual clock does not run by itself: its tests expire. */
static uint64_t waits_due_ns(struct spw_manager *manager)
{
    const struct spw__clock *clock = manager->env.clock;
    if (!manager->waits.drive || (clock && clock->now_ns) || atomic_load(&manager->tickets.under_way) == 0)
        return UINT64_MAX;
    const uint64_t due_ns = atomic_load(&manager->waits.due_ns);
    return due_ns ? due_ns : 1; /* 0 would disarm the timer */
}

/* eventfds that are written and read when they can be, and timers with times that are valid, do not fail. */
static void light_locked(struct spw__loop *loop, bool lit)
{
    uint64_t count = 1;
    if (lit == loop->lit)
        return;
    loop->lit = lit;
    const ssize_t done = lit ? write(loop->event_fd, &count, sizeof count) : read(loop->event_fd, &count, sizeof count);
    (void)done;
}

static void arm_locked(struct spw__loop *loop, uint64_t due_ns)
{
    const uint64_t at_ns = due_ns == UINT64_MAX ? 0 : due_ns;
    const struct itimerspec when = {.it_value = {.tv_sec = (time_t)(at_ns / 1000000000),
                                                 .tv_nsec = (long)(at_ns % 1000000000)}};
    if (due_ns == loop->armed_ns)
        return;
    loop->armed_ns = due_ns;
    (void)timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &when, NULL); /* what it told of before is over too */
}

void spw__loop_changed(void *arg)
{
    struct spw_manager *manager = arg;
    struct spw__loop *loop = &manager->loop;
    if (atomic_load(&loop->fd) < 0)
        return;
    spw__mutex_lock(&loop->lock);
    const uint64_t mover_due_ns = spw__mover_due_ns(manager->mover);
    const uint64_t due_ns = waits_due_ns(manager);
    const bool lit = atomic_load(&loop->unseen) != 0 || has_work(manager, mover_due_ns);
    light_locked(loop, lit);
    if (!lit) /* else it is called again */
        arm_locked(loop, mover_due_ns < due_ns ? mover_due_ns : due_ns);
    spw__mutex_unlock(&loop->lock);
}

void spw__loop_note_end(spw_ticket *ticket)
{
    int seen = SPW__SEEN_NOT_ENDED;
    if (atomic_compare_exchange_strong(&ticket->seen, &seen, SPW__SEEN_NOT) &&
        atomic_fetch_add(&ticket->manager->loop.unseen, 1) == 0)
        spw__loop_changed(ticket->manager);
}

void spw__loop_note_look(spw_ticket *ticket)
{
    if (atomic_load(&ticket->seen) != SPW__SEEN && atomic_exchange(&ticket->seen, SPW__SEEN) == SPW__SEEN_NOT &&
        atomic_fetch_sub(&ticket->manager->loop.unseen, 1) == 1)
        spw__loop_changed(ticket->manager);
}

/* -1, with errno, when a fault point says so. */
static int opened(int fd)
{
    const int fault = spw__fault(SPW__FAULT_EVENT_FD);
    if (!fault)
        return fd;
    close_open(fd);
    errno = fault;
    return -1;
}

static bool watch(int fd, int what)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(fd, EPOLL_CTL_ADD, what, &event) == 0;
}

/* Opens all that the descriptor consists of; -1 and errno, with nothing left open, when that fails. */
static int open_locked(struct spw_manager *manager)
{
    struct spw__loop *loop = &manager->loop;
    int fd = opened(epoll_create1(EPOLL_CLOEXEC));
    loop->event_fd = fd < 0 ? -1 : opened(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    loop->timer_fd = loop->event_fd < 0 ? -1 : opened(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (loop->timer_fd >= 0 && watch(fd, loop->event_fd) && watch(fd, loop->timer_fd) &&
        (!manager->waits.drive || watch(fd, spw__mover_fd(manager->mover))))
        return fd;
    const int os_errno = errno;
    close_open(loop->timer_fd);
    close_open(loop->event_fd);
    close_open(fd);
    errno = os_errno;
    return -1;
}

int spw_manager_fd(spw_manager *manager)
{
    if (!manager)
        return spw__fail(SPW_EINVAL, "spw_manager_fd: manager is NULL");
    const int rc = spw__check_process(manager);
    struct spw__loop *loop = &manager->loop;
    if (rc != SPW_OK)
        return rc;
    spw__mutex_lock(&loop->lock);
    int fd = atomic_load(&loop->fd);
    const bool opens = fd < 0;
    if (opens) {
        fd = open_locked(manager);
        atomic_store(&loop->fd, fd);
    }
    const spw_error_info info = {.os_errno = fd < 0 ? errno : 0};
    spw__mutex_unlock(&loop->lock);
    if (fd < 0)
        return spw__fail_info(&info, SPW_ENOMEM, "spw_manager_fd: no descriptor for an event loop: %s",
                              strerror(info.os_errno));
    if (opens)
        spw__loop_changed(manager);
    return fd;
}
