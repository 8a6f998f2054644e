/* Host memory slabs. Neighbours: tier.c, which cuts them into pools. */
#include "pool/source_host.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/base/thread.h"
#include "pool/base/units.h"

#define PARALLEL_MIN_BYTES (UINT64_C(64) << 20) /* below, starting threads costs more than it saves */
#define POPULATE_STEP_BYTES (UINT64_C(16) << 20)
enum { POPULATE_THREADS_MAX = 8 };

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

static uint64_t mapped_bytes(uint64_t bytes)
{
    return spw__round_up(bytes, SPW__HUGE_PAGE);
}

int spw__host_map(uint64_t bytes, void **out)
{
    const int injected = spw__fault(SPW__FAULT_HOST_MAP);
    const uint64_t need = mapped_bytes(bytes);
    *out = NULL;
    if (need < bytes || need > SIZE_MAX - SPW__HUGE_PAGE)
        return spw__fail(SPW_ENOMEM, "host memory of %llu bytes is more than an address can name",
                         (unsigned long long)bytes);
    /* One huge page more than asked for: mmap aligns to 4 KiB only, and the spare ends are given back. */
    char *raw = injected ? MAP_FAILED
                         : mmap(NULL, need + SPW__HUGE_PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        const int os_errno = injected ? injected : errno;
        return spw__fail_info(&(spw_error_info){.os_errno = os_errno, .requested_bytes = bytes}, SPW_ENOMEM,
                              "the system refuses %llu bytes of address space for host memory: %s",
                              (unsigned long long)bytes, strerror(os_errno));
    }
    const uint64_t lead = (SPW__HUGE_PAGE - ((uintptr_t)raw & (SPW__HUGE_PAGE - 1))) & (SPW__HUGE_PAGE - 1);
    if (lead)
        (void)munmap(raw, lead);
    (void)munmap(raw + lead + need, SPW__HUGE_PAGE - lead);
    /* O_DIRECT on 4 KiB pages reaches less than half of the disk's rate. A slab below one huge page stays on small
     * pages, so that it cannot occupy more than its budget. */
    if (bytes >= SPW__HUGE_PAGE)
        (void)madvise(raw + lead, spw__round_down(bytes, SPW__HUGE_PAGE), MADV_HUGEPAGE);
    (void)madvise(raw + lead, need, MADV_DONTFORK);
    *out = raw + lead;
    return SPW_OK;
}

void spw__host_unmap(void *base, uint64_t bytes)
{
    if (base)
        (void)munmap(base, mapped_bytes(bytes));
}

/* The system call itself: libnuma would add no more than its name. */
#define MPOL_BIND 2
#define NODES_MAX 1024u

static bool node_exists(unsigned node)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%u", node);
    if (access("/sys/devices/system/node", F_OK) != 0) /* a kernel without NUMA: all memory is node 0 */
        return node == 0;
    return access(path, F_OK) == 0;
}

int spw__host_bind(void *base, uint64_t bytes, unsigned node, const struct spw__log *log)
{
    enum { WORD_BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[NODES_MAX / WORD_BITS] = {0};
    if (node >= NODES_MAX || !node_exists(node))
        return spw__fail(SPW_EINVAL, "numa=%u: this machine has no such NUMA node", node);
    mask[node / WORD_BITS] = 1ul << node % WORD_BITS;
    if (syscall(SYS_mbind, base, (unsigned long)mapped_bytes(bytes), MPOL_BIND, mask, NODES_MAX + 1ul, 0u) == 0)
        return SPW_OK;
    const int os_errno = errno;
    if (os_errno == EINVAL)
        return spw__fail_info(&(spw_error_info){.os_errno = os_errno}, SPW_EINVAL,
                              "numa=%u: this process may not have memory on that NUMA node", node);
    spw__logf(log, SPW__LOG_WARN, "host memory is not bound to NUMA node %u: %s", node, strerror(os_errno));
    return SPW_OK;
}

/* Work that several threads take from: the next part to touch. */
struct populate {
    char *begin;
    uint64_t bytes;
    _Atomic uint64_t next;  /* atomic */
    _Atomic int os_errno;   /* atomic: first failure */
};

static void *populate_parts(void *arg)
{
    struct populate *work = arg;
    for (;;) {
        const uint64_t at = atomic_fetch_add(&work->next, POPULATE_STEP_BYTES);
        if (at >= work->bytes || atomic_load(&work->os_errno))
            return NULL;
        const uint64_t left = work->bytes - at;
        int error = spw__fault(SPW__FAULT_HOST_POPULATE);
        if (error == 0 && madvise(work->begin + at, left < POPULATE_STEP_BYTES ? left : POPULATE_STEP_BYTES,
                                  MADV_POPULATE_WRITE) != 0)
            error = errno;
        /* A kernel that does not know the advice gives the memory at first use instead. */
        if (error && error != EINVAL && error != EINTR)
            atomic_store(&work->os_errno, error);
    }
}

int spw__host_populate(void *begin, uint64_t bytes)
{
    struct populate work = {.begin = begin, .bytes = bytes};
    pthread_t threads[POPULATE_THREADS_MAX];
    long helpers = bytes < PARALLEL_MIN_BYTES ? 0 : sysconf(_SC_NPROCESSORS_ONLN) - 1;
    long started = 0;
    helpers = helpers > POPULATE_THREADS_MAX ? POPULATE_THREADS_MAX : helpers;
    while (started < helpers && spw__thread_create(&threads[started], populate_parts, &work) == 0)
        started++;
    (void)populate_parts(&work);
    while (started > 0)
        (void)pthread_join(threads[--started], NULL);
    const int os_errno = atomic_load(&work.os_errno);
    if (os_errno == 0)
        return SPW_OK;
    return spw__fail_info(&(spw_error_info){.os_errno = os_errno, .requested_bytes = bytes}, SPW_ENOMEM,
                          "the system has no memory for %llu bytes of a host pool: %s; lower host= or pinned=",
                          (unsigned long long)bytes, strerror(os_errno));
}

bool spw__host_lock(void *begin, uint64_t bytes, const struct spw__log *log)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (mlock(begin, bytes) == 0)
        return true;
    const int os_errno = errno;
    if (!atomic_flag_test_and_set(&said))
        spw__logf(log, SPW__LOG_INFO, "pinned_host memory is not locked (%s): it may be swapped out; raise the limit "
                                      "(ulimit -l) to lock it", strerror(os_errno));
    return false;
}

/* Bytes of [begin, begin + bytes) that are in memory. */
static uint64_t resident_bytes(char *begin, uint64_t bytes)
{
    unsigned char pages[1024];
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t resident = 0;
    for (uint64_t at = 0; at < bytes; at += page * sizeof pages) {
        const uint64_t left = bytes - at;
        const size_t n = (size_t)(left / page < sizeof pages ? left / page : sizeof pages);
        if (mincore(begin + at, n * page, pages) != 0)
            return bytes; /* the system does not tell */
        for (size_t i = 0; i < n; i++)
            resident += pages[i] & 1u;
    }
    return resident * page;
}

uint64_t spw__host_discard(void *begin, uint64_t bytes)
{
    const uint64_t from = spw__round_up((uintptr_t)begin, SPW__HUGE_PAGE);
    const uint64_t to = spw__round_down((uintptr_t)begin + bytes, SPW__HUGE_PAGE);
    if (to <= from)
        return 0;
    const uint64_t resident = resident_bytes((char *)(uintptr_t)from, to - from);
    (void)munlock((void *)(uintptr_t)from, to - from);
    return madvise((void *)(uintptr_t)from, to - from, MADV_DONTNEED) == 0 ? resident : 0;
}
