#include <spillway/spillway.h>
#include <stdint.h>
#include <stdio.h>

#define MUST(call) do { if ((call) != SPW_OK) { puts(spw_error_detail()->message); return 1; } } while (0)
enum { COUNT = 32, BYTES = 1 << 20, NUMBERS = BYTES / 8 };

/* What a kernel would be on a GPU; it may run long after it was launched, so what it is given must last. */
struct work {
    void *data;
    uint64_t number, sum;
};
static struct work filling[COUNT], adding[COUNT];

static void fill(void *arg)
{
    const struct work *work = arg;
    uint64_t *numbers = spw_device_address(work->data, BYTES);
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = work->number;
}

static void add(void *arg)
{
    struct work *work = arg;
    const uint64_t *numbers = spw_device_address(work->data, BYTES);
    for (int i = 0; i < NUMBERS; i++)
        work->sum += numbers[i];
}

/* Maps the buffer on the device for the stream, gives it the work, and lets go: nothing here waits for the work. */
static int use(spw_manager *manager, spw_buffer *buffer, uint32_t flags, spw_stream *stream, spw_device_fn fn,
               struct work *work)
{
    spw_view view;
    spw_map_options options;
    spw_map_options_init(&options);
    options.stream = stream;
    MUST(spw_map(buffer, SPW_DEVICE, flags, &options, &view));
    work->data = view.data;
    MUST(spw_device_launch(manager, stream, fn, work));
    MUST(spw_unmap(buffer, &view, stream));
    return 0;
}

int main(void)
{
    spw_manager *manager;
    spw_stream *writer, *reader;
    spw_buffer *buffers[COUNT];
    spw_options options;
    uint64_t sum = 0;

    spw_options_init(&options);
    options.spec = "device=8M; pinned=8M; host=8M; disk=.:64M; driver=sim";
    MUST(spw_manager_create(&options, &manager));
    MUST(spw_stream_create(manager, &writer));
    MUST(spw_stream_create(manager, &reader));
    for (int i = 0; i < COUNT; i++) { /* 32 MiB, of which the device holds 8: the rest goes down when it is filled */
        filling[i].number = (uint64_t)i;
        MUST(spw_alloc(manager, SPW_DEVICE, BYTES, NULL, &buffers[i]));
        if (use(manager, buffers[i], SPW_MAP_WRITE | SPW_MAP_DISCARD, writer, fill, &filling[i]) != 0)
            return 1;
        MUST(spw_buffer_seal(buffers[i]));
    }
    for (int i = 0; i < COUNT; i++) /* each comes back, and the other stream reads it after the first has written it */
        if (use(manager, buffers[i], SPW_MAP_READ, reader, add, &adding[i]) != 0)
            return 1;
    MUST(spw_stream_wait(manager, reader, NULL)); /* now the CPU may look at what the stream has left */
    for (int i = 0; i < COUNT; i++) {
        sum += adding[i].sum;
        MUST(spw_buffer_release(buffers[i]));
    }
    MUST(spw_stream_destroy(manager, writer));
    MUST(spw_stream_destroy(manager, reader));
    MUST(spw_manager_destroy(manager));
    if (sum != (uint64_t)COUNT * (COUNT - 1) / 2 * NUMBERS)
        return 1;
    return puts("32 MiB were written and read on streams of a device of 8 MiB") < 0;
}
