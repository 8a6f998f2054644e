#include <spillway/spillway.h>
#include <stdio.h>

#define MUST(call) do { if ((call) != SPW_OK) { puts(spw_error_detail()->message); return 1; } } while (0)
enum { MIB = 1 << 20 };

int main(void)
{
    spw_manager *manager;
    spw_options options;
    spw_group *tenant, *query;
    spw_group_options group;
    spw_admit_options admit;
    spw_buffer *buffers[8], *more;

    spw_options_init(&options);
    options.spec = "host=9M; staging=1M; disk=.:64M"; /* 8 MiB for buffers */
    MUST(spw_manager_create(&options, &manager));

    spw_group_options_init(&group);
    group.name = "tenant";
    group.shares[SPW_TIER_HOST].min_bytes = 2 * MIB; /* always there for it */
    group.shares[SPW_TIER_HOST].max_bytes = 4 * MIB; /* never more, however much is free */
    MUST(spw_group_create(manager, &group, &tenant));
    spw_group_options_init(&group);
    group.name = "query";
    group.parent = tenant;
    MUST(spw_group_create(manager, &group, &query));

    spw_admit_options_init(&admit);
    admit.group = query;
    for (int i = 0; i < 8; i++) { /* twice what it may have: its own coldest buffers go to disk */
        MUST(spw_admit(manager, MIB, &admit, &buffers[i]));
        MUST(spw_buffer_seal(buffers[i]));
    }
    spw_group_usage usage = SPW_GROUP_USAGE_INIT;
    MUST(spw_group_usage_get(tenant, SPW_HOST, &usage));
    printf("the tenant has %llu MiB of host\n", (unsigned long long)usage.committed_bytes / MIB);

    MUST(spw_group_cancel(query)); /* the bytes go at once, from memory and disk; the handles stay */
    if (spw_admit(manager, MIB, &admit, &more) != SPW_ECANCELED)
        return 1;
    for (int i = 0; i < 8; i++)
        MUST(spw_buffer_release(buffers[i]));
    MUST(spw_group_destroy(query));
    MUST(spw_group_destroy(tenant));
    MUST(spw_manager_destroy(manager));
    return 0;
}
