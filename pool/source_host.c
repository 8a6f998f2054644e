/* Host memory slabs. Neighbours: tier.c, which cuts them into pools. */
#include "pool/source_host.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"

#define HUGE_PAGE (UINT64_C(2) << 20)

static uint64_t mapped_bytes(uint64_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

int spw__host_map(uint64_t bytes, void **out)
{
    const int injected = spw__fault(SPW__FAULT_HOST_MAP);
    const uint64_t need = mapped_bytes(bytes);
    *out = NULL;
    if (need < bytes || need > SIZE_MAX - HUGE_PAGE)
        return spw__fail(SPW_ENOMEM, "host memory of %llu bytes is more than an address can name",
                         (unsigned long long)bytes);
    /* One huge page more than asked for: mmap aligns to 4 KiB only, and the spare ends are given back. */
    char *raw = injected ? MAP_FAILED
                         : mmap(NULL, need + HUGE_PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        const int os_errno = injected ? injected : errno;
        return spw__fail_info(&(spw_error_info){.os_errno = os_errno, .requested_bytes = bytes}, SPW_ENOMEM,
                              "the system refuses %llu bytes of address space for host memory: %s",
                              (unsigned long long)bytes, strerror(os_errno));
    }
    const uint64_t lead = (HUGE_PAGE - ((uintptr_t)raw & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    if (lead)
        (void)munmap(raw, lead);
    (void)munmap(raw + lead + need, HUGE_PAGE - lead);
    /* O_DIRECT on 4 KiB pages reaches less than half of the disk's rate. A slab below one huge page stays on small pages,
     * so that it cannot occupy more than its budget. */
    if (bytes >= HUGE_PAGE)
        (void)madvise(raw + lead, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    (void)madvise(raw + lead, need, MADV_DONTFORK);
    *out = raw + lead;
    return SPW_OK;
}

void spw__host_unmap(void *base, uint64_t bytes)
{
    if (base)
        (void)munmap(base, mapped_bytes(bytes));
}
