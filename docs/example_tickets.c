#include <poll.h>
#include <spillway/spillway.h>
#include <stdio.h>
#include <string.h>

#define MUST(call) do { if ((call) != SPW_OK) { puts(spw_error_detail()->message); return 1; } } while (0)
enum { COUNT = 32, BYTES = 1 << 20 };

static spw_buffer *buffers[COUNT];
static spw_ticket *tickets[COUNT];

/* Fills what was admitted. Once it is sealed it may go to disk, which makes room for the tickets that still wait. */
static int on_admitted(int i)
{
    spw_view view;
    MUST(spw_ticket_take_buffer(tickets[i], &buffers[i]));
    MUST(spw_map(buffers[i], SPW_HOST, SPW_MAP_WRITE, NULL, &view)); /* it lies there: nothing to wait for */
    memset(view.data, i, BYTES);
    MUST(spw_unmap(buffers[i], &view, NULL));
    MUST(spw_buffer_seal(buffers[i]));
    return 0;
}

static int on_mapped(int i)
{
    spw_view view;
    MUST(spw_ticket_take_view(tickets[i], &view));
    if (((const unsigned char *)view.data)[BYTES - 1] != i)
        return 1;
    MUST(spw_unmap(buffers[i], &view, NULL));
    MUST(spw_buffer_release(buffers[i]));
    return 0;
}

/* The event loop: sleeps in poll(2) alone, lends its thread to the library, and handles each ticket as it ends. */
static int run_loop(spw_manager *manager, int (*on_end)(int i))
{
    struct pollfd events[] = {{.fd = spw_manager_fd(manager), .events = POLLIN}}; /* a server's sockets would follow */
    for (int left = COUNT; left > 0;) {
        if (poll(events, 1, -1) != 1 || spw_progress(manager, 0) < 0)
            return 1;
        for (int i = 0; i < COUNT; i++) {
            const int rc = tickets[i] ? spw_ticket_poll(tickets[i]) : SPW_EAGAIN;
            if (rc == SPW_EAGAIN)
                continue;
            MUST(rc);
            if (on_end(i) != 0)
                return 1;
            spw_ticket_destroy(tickets[i]);
            tickets[i] = NULL;
            left--;
        }
    }
    return 0;
}

int main(void)
{
    spw_manager *manager;
    spw_options options;

    spw_options_init(&options);
    options.spec = "host=8M; disk=.:64M; threads=0"; /* the loop's own thread does it all; with threads=1 it need not */
    MUST(spw_manager_create(&options, &manager));
    for (int i = 0; i < COUNT; i++) /* 32 MiB are asked for at once; none of these calls waits */
        MUST(spw_admit_start(manager, BYTES, NULL, &tickets[i]));
    if (run_loop(manager, on_admitted) != 0)
        return 1;
    for (int i = 0; i < COUNT; i++)
        MUST(spw_map_start(buffers[i], SPW_HOST, SPW_MAP_READ, NULL, &tickets[i]));
    if (run_loop(manager, on_mapped) != 0)
        return 1;
    MUST(spw_manager_destroy(manager));
    return puts("64 tickets, and no thread that waited for one") < 0;
}
