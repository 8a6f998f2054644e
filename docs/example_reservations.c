#include <spillway/spillway.h>
#include <stdio.h>

#define MUST(call) do { if ((call) != SPW_OK) { puts(spw_error_detail()->message); return 1; } } while (0)
enum { MIB = 1 << 20 };

int main(void)
{
    spw_manager *manager;
    spw_reservation *join, *rest;
    spw_reserve_options want;
    spw_alloc_options under;
    spw_options options;
    spw_buffer *build, *probe;
    spw_block scratch;
    spw_pool_options raw;

    spw_options_init(&options);
    options.spec = "host=12M; disk=.:64M"; /* of which 3 MiB are staging */
    MUST(spw_manager_create(&options, &manager));

    /* A join that needs 6 MiB at once asks for them before it begins: it then has all of them, or has not begun. */
    MUST(spw_reserve(manager, SPW_HOST, 6 * MIB, NULL, &join));
    spw_alloc_options_init(&under);
    under.reservation = join;
    MUST(spw_alloc(manager, SPW_HOST, 4 * MIB, &under, &build)); /* no wait for the budget: the bytes are its own */
    spw_pool_options_init(&raw);
    raw.reservation = join;
    MUST(spw_pool_alloc(manager, SPW_HOST, MIB, 0, NULL, &raw, &scratch));
    if (spw_reservation_size(join) != MIB)
        return 1;

    /* The probe side takes as much as there is now, and at least 64 KiB. */
    spw_reserve_options_init(&want);
    want.flags = SPW_RESERVE_UPTO;
    want.least_bytes = 64 << 10;
    MUST(spw_reserve(manager, SPW_HOST, 4 * MIB, &want, &rest));
    under.reservation = rest;
    MUST(spw_alloc(manager, SPW_HOST, (size_t)spw_reservation_size(rest), &under, &probe));

    spw_reservation_release(join); /* gives back the 1 MiB that was not needed; what was allocated stays */
    spw_reservation_release(rest);
    spw_buffer_release(build);
    spw_buffer_release(probe);
    MUST(spw_pool_free(manager, &scratch, NULL));
    MUST(spw_manager_destroy(manager));
    return 0;
}
