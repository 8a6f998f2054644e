#include <spillway/spillway.h>
#include <stdio.h>
#include <string.h>

#define MUST(call) do { if ((call) != SPW_OK) { puts(spw_error_detail()->message); return 1; } } while (0)
enum { COUNT = 32, BYTES = 1 << 20 };

int main(void)
{
    spw_manager *manager;
    spw_buffer *buffers[COUNT];
    spw_options options;
    spw_view view;

    spw_options_init(&options);
    options.spec = "host=8M; disk=.:64M"; /* 8 MiB of memory, then this folder */
    MUST(spw_manager_create(&options, &manager));
    for (int i = 0; i < COUNT; i++) { /* 32 MiB are produced */
        MUST(spw_admit(manager, BYTES, NULL, &buffers[i]));
        MUST(spw_map(buffers[i], SPW_HOST, SPW_MAP_WRITE, NULL, &view));
        memset(view.data, i, BYTES);
        MUST(spw_unmap(buffers[i], &view, NULL));
        MUST(spw_buffer_seal(buffers[i])); /* from here on it may be moved to disk */
    }
    for (int i = 0; i < COUNT; i++) { /* and read back, in any order */
        MUST(spw_map(buffers[i], SPW_HOST, SPW_MAP_READ, NULL, &view));
        if (((const unsigned char *)view.data)[BYTES - 1] != i)
            return 1;
        MUST(spw_unmap(buffers[i], &view, NULL));
        MUST(spw_buffer_release(buffers[i]));
    }
    MUST(spw_manager_destroy(manager));
    return puts("32 MiB went through 8 MiB of memory") < 0;
}
