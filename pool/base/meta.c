/* Metadata memory: behind a gate, from an arena of jemalloc's where the process carries it, else from malloc. */
#include "pool/base/meta.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pool/base/fault.h"
#include "pool/base/units.h"

/* jemalloc's own interface, bound only if something else has brought it into the process. Its header is not needed: the
 * bits of flags are part of its ABI. */
extern void *mallocx(size_t size, int flags) __attribute__((weak));
extern void dallocx(void *ptr, int flags) __attribute__((weak));
extern int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size) __attribute__((weak));

#define ALIGN_64 6      /* MALLOCX_LG_ALIGN(6) */
#define ALIGN_HUGE 21   /* MALLOCX_LG_ALIGN(21) */
#define ZERO 0x40       /* MALLOCX_ZERO */
#define NO_TCACHE 0x100 /* MALLOCX_TCACHE_NONE: freed memory is at once the arena's, which may then go */
#define ARENA_SHIFT 20  /* MALLOCX_ARENA(n) is n + 1 shifted by it */
#define ARENAS_MAX 4095u

static bool has_jemalloc(void)
{
    return mallocx && dallocx && mallctl;
}

void spw__meta_init(struct spw__meta *meta, uint64_t budget_bytes)
{
    unsigned arena = 0;
    size_t size = sizeof arena;
    spw__gate_init(&meta->gate, budget_bytes);
    meta->arena = 0;
    if (has_jemalloc() && mallctl("arenas.create", &arena, &size, NULL, 0) == 0 && arena < ARENAS_MAX)
        meta->arena = arena + 1;
}

void spw__meta_finish(struct spw__meta *meta)
{
    char name[32];
    (void)snprintf(name, sizeof name, "arena.%u.destroy", meta->arena - 1);
    if (meta->arena)
        (void)mallctl(name, NULL, NULL, NULL, 0);
    meta->arena = 0;
}

/* On huge pages, where the system has them: what is looked up at random is found in one step less. */
static void *alloc_huge(unsigned arena, size_t size)
{
    void *ptr = NULL;
    if (arena)
        ptr = mallocx(size, (int)(arena << ARENA_SHIFT) | NO_TCACHE | ALIGN_HUGE);
    else if (posix_memalign(&ptr, SPW__HUGE_PAGE, size) != 0)
        return NULL;
    if (!ptr)
        return NULL;
    (void)madvise(ptr, size, MADV_HUGEPAGE); /* a wish */
    return memset(ptr, 0, size);
}

static void *alloc_in(unsigned arena, size_t size)
{
    void *ptr = NULL;
    if (size >= SPW__HUGE_PAGE)
        return alloc_huge(arena, size);
    if (arena)
        return mallocx(size ? size : 1, (int)(arena << ARENA_SHIFT) | NO_TCACHE | ZERO | (size < 64 ? 0 : ALIGN_64));
    if (size < 64)
        return calloc(1, size ? size : 1);
    if (posix_memalign(&ptr, 64, size) != 0)
        return NULL;
    return memset(ptr, 0, size);
}

void *spw__meta_alloc(struct spw__meta *meta, size_t size)
{
    if (spw__fault(SPW__FAULT_META_ALLOC) != 0)
        return NULL;
    if (meta && !spw__gate_commit(&meta->gate, size))
        return NULL;
    void *ptr = alloc_in(meta ? meta->arena : 0, size);
    if (!ptr && meta)
        spw__gate_uncommit(&meta->gate, size);
    return ptr;
}

void spw__meta_free(struct spw__meta *meta, void *ptr, size_t size)
{
    if (!ptr)
        return;
    if (meta && meta->arena)
        dallocx(ptr, NO_TCACHE);
    else
        free(ptr);
    if (meta)
        spw__gate_uncommit(&meta->gate, size);
}

uint64_t spw__meta_resident_bytes(const struct spw__meta *meta)
{
    char name[40];
    uint64_t epoch = 1; /* figures are those of the last time that it was set */
    size_t bytes = 0, size = sizeof bytes;
    (void)snprintf(name, sizeof name, "stats.arenas.%u.resident", meta->arena - 1);
    if (!meta->arena || mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) != 0 ||
        mallctl(name, &bytes, &size, NULL, 0) != 0)
        return 0;
    return bytes;
}
