/* One call of the device's driver fails in the middle of everything: nothing leaks, no byte is wrong, counters are
 * exact, and the error says what failed.
 *
 * For each entry point of the driver's table and n, the n-th call since the manager was asked for, or since it was
 * there, fails with an error that passes, with one of memory, or with one that loses the device. What was written must
 * then be right wherever it can still be read; only what lay on a lost device alone may be gone, and is said to be.
 *
 * usage: device_faults            a sample of n: in every run
 *        device_faults --long     n from 1 to 50
 *        device_faults ENTRY N KIND PHASE SPEC   one run, as a failure names it
 */
#include "tests/seeded_fixture.h"

#include <signal.h>

enum { BUFFERS = 12, STEPS = 90, BYTES_MAX = 120 * 1024, RUN_SECONDS = 60 };

enum kind { PASSING, NO_MEMORY, STICKY, KINDS };
enum phase { CREATE, WORK, PHASES };

static const char *const kind_names[] = {"passing", "no-memory", "sticky"};
static const char *const phase_names[] = {"create", "work"};
static const char *const entry_names[] = {
#define SPW__X(field, name, symbol, version, params, args) #field,
    SPW__DRIVER_LIST(SPW__X)
#undef SPW__X
};

static const char *const specs[] = {
    "device=1M; pinned=640K; host=512K; staging=64K; piece=64K; disk=%s:16M; driver=sim; io=threads; io_threads=1",
    "device=512K:64K,512K; host=512K; staging=64K; piece=32K; disk=%s:16M; driver=sim; io=threads; threads=0",
    "device=2M; grow=vmm; host=512K; staging=64K; piece=32K; disk=%s:16M; driver=sim; io=threads; io_threads=1",
};
enum { SPECS = sizeof specs / sizeof specs[0] };

struct held {
    spw_buffer *buffer;
    unsigned content;
};

/* What is to fail, and what for. */
struct scene {
    enum spw__driver_entry entry;
    long n;
    enum kind kind;
    enum phase phase;
    unsigned spec;
};

static struct {
    struct scene scene;
    bool quiet; /* no fault: nothing may fail */
    uint64_t state;
    struct held held[BUFFERS];
    spw_stream *stream;
    unsigned errors;
    unsigned content;
} run;

static unsigned char scratch[BYTES_MAX];

static void name_run(void)
{
    const struct scene *scene = &run.scene;
    (void)fprintf(stderr, "device_faults %s %ld %s %s %u\n", entry_names[scene->entry], scene->n,
                  kind_names[scene->kind], phase_names[scene->phase], scene->spec);
}

#define MUST_IN_RUN(condition)                                                                                         \
    do {                                                                                                               \
        const bool holds_ = (condition);                                                                               \
        if (!holds_)                                                                                                   \
            name_run();                                                                                                \
        MUST(holds_ && #condition);                                                                                    \
    } while (0)

static void takes_too_long(int signal_number)
{
    (void)signal_number;
    name_run();
    abort();
}

static unsigned below(unsigned n)
{
    return next_below(&run.state, n);
}

static bool says(const char *words)
{
    return strstr(spw_error_detail()->message, words) != NULL;
}

/* True when the call succeeded. Else its error is the device's, and says which call it was or that the device is lost.
 */
static bool worked(int rc)
{
    if (rc == SPW_OK)
        return true;
    MUST_IN_RUN(!run.quiet);
    MUST_IN_RUN(rc == SPW_EDEVICE && spw_error_detail()->code == rc);
    MUST_IN_RUN(spw_error_detail()->place == SPW_DEVICE);
    MUST_IN_RUN(says("CUDA_ERROR_") || says("an error without a name"));
    run.errors++;
    return false;
}

static void let_go(struct held *held)
{
    MUST_IN_RUN(spw_buffer_release(held->buffer) == SPW_OK);
    held->buffer = NULL;
}

static spw_place random_place(void)
{
    spw_tier tier = below(3);
    while (!manager->tiers[tier].present)
        tier = (tier + 1) % SPW__MEMORY_TIERS;
    return SPW_PLACE(tier, 0);
}

/* Fills a buffer that lies on the device in stream order. False: it failed, and the buffer is worth nothing. The source
 * is waited for, since it is filled again next. */
static bool write_on_stream(spw_buffer *buffer, unsigned content)
{
    spw_view view;
    spw_map_options options;
    struct spw__device *device = manager->device;
    spw_map_options_init(&options);
    options.stream = run.stream;
    fill(scratch, spw_buffer_size(buffer), content);
    if (!worked(spw_map(buffer, SPW_DEVICE, SPW_MAP_WRITE, &options, &view)))
        return false;
    const int rc = spw__device_copy_to(device, run.stream, (uint64_t)(uintptr_t)view.data, scratch, view.size);
    const bool wrote = worked(rc), closed = worked(spw_unmap(buffer, &view, run.stream));
    return worked(spw__device_settle(device, run.stream)) && wrote && closed;
}

static void make(struct held *held)
{
    spw_admit_options options;
    const size_t bytes = 1 + below(BYTES_MAX);
    held->content = ++run.content;
    spw_admit_options_init(&options);
    options.tag = "of a run";
    if (!worked(spw_admit(manager, bytes, &options, &held->buffer)))
        return;
    bool wrote = false;
    if (spw_buffer_place(held->buffer) == SPW_DEVICE && below(2)) {
        wrote = write_on_stream(held->buffer, held->content);
    } else {
        fill(scratch, bytes, held->content);
        wrote = worked(spw_buffer_write(held->buffer, 0, scratch, bytes));
    }
    if (wrote && spw_buffer_seal(held->buffer) == SPW_OK)
        return;
    let_go(held);
}

/* By the CPU, in any tier. */
static void look_at(const struct held *held, spw_place place, uint32_t flags)
{
    spw_view view;
    if (!worked(spw_map(held->buffer, place, SPW_MAP_READ | flags, NULL, &view)))
        return;
    /* A device that was lost since has no content. */
    if (view.place != SPW_DEVICE || !spw__device_is_lost(manager->device))
        MUST_IN_RUN(has_content(bytes_of(&view), view.size, held->content));
    (void)worked(spw_unmap(held->buffer, &view, NULL));
}

/* By a copy in stream order. */
static void read_on_stream(const struct held *held)
{
    spw_view view;
    spw_map_options options;
    struct spw__device *device = manager->device;
    spw_map_options_init(&options);
    options.stream = run.stream;
    memset(scratch, 0, sizeof scratch);
    if (!worked(spw_map(held->buffer, SPW_DEVICE, SPW_MAP_READ, &options, &view)))
        return;
    const size_t size = view.size;
    const int rc = spw__device_copy_from(device, run.stream, scratch, (uint64_t)(uintptr_t)view.data, size);
    const bool copied = worked(rc);
    (void)worked(spw_unmap(held->buffer, &view, run.stream));
    if (worked(spw__device_settle(device, run.stream)) && copied)
        MUST_IN_RUN(has_content(scratch, size, held->content));
}

/* By the CPU in host memory, once a stream has done what brings it there. */
static void look_after_stream(const struct held *held)
{
    spw_view view;
    spw_map_options options;
    spw_map_options_init(&options);
    options.stream = run.stream;
    if (!worked(spw_map(held->buffer, SPW_HOST, SPW_MAP_READ, &options, &view)))
        return;
    if (worked(spw__device_settle(manager->device, run.stream)))
        MUST_IN_RUN(has_content(view.data, view.size, held->content));
    (void)worked(spw_unmap(held->buffer, &view, below(2) ? run.stream : NULL));
}

static void look_by_ticket(const struct held *held)
{
    spw_ticket *ticket = NULL;
    spw_view view;
    MUST_IN_RUN(spw_map_start(held->buffer, random_place(), SPW_MAP_READ, NULL, &ticket) == SPW_OK);
    if (worked(spw_ticket_wait(ticket, NULL))) {
        MUST_IN_RUN(spw_ticket_take_view(ticket, &view) == SPW_OK);
        if (view.place != SPW_DEVICE || !spw__device_is_lost(manager->device))
            MUST_IN_RUN(has_content(bytes_of(&view), view.size, held->content));
        (void)worked(spw_unmap(held->buffer, &view, NULL));
    }
    MUST_IN_RUN(spw_ticket_destroy(ticket) == SPW_OK);
}

/* A copy of a shared buffer, or the buffer itself, for writing; then it holds other content. */
static void rewrite(struct held *held)
{
    const bool shared = below(2);
    spw_buffer *other = held->buffer;
    if (shared)
        MUST_IN_RUN(spw_buffer_retain(held->buffer) == SPW_OK);
    if (!worked(spw_buffer_make_writable(&held->buffer, random_place(), NULL))) {
        MUST_IN_RUN(held->buffer == other);
        if (shared)
            MUST_IN_RUN(spw_buffer_release(other) == SPW_OK);
        return;
    }
    if (shared) {
        look_at(&(struct held){other, held->content}, random_place(), SPW_MAP_HERE);
        MUST_IN_RUN(spw_buffer_release(other) == SPW_OK);
    }
    held->content = ++run.content;
    fill(scratch, spw_buffer_size(held->buffer), held->content);
    if (!worked(spw_buffer_write(held->buffer, 0, scratch, spw_buffer_size(held->buffer))) ||
        spw_buffer_seal(held->buffer) != SPW_OK)
        let_go(held);
}

static void use_raw(void)
{
    struct spw__device *device = manager->device;
    spw_block blocks[2] = {{.ptr = NULL}};
    for (unsigned i = 0; i < 2; i++) {
        spw_pool_options options;
        spw_pool_options_init(&options);
        if (!worked(spw_pool_alloc(manager, SPW_DEVICE, 1 + below(64 * 1024), 0, run.stream, &options, &blocks[i])))
            continue;
        (void)worked(spw__device_copy_to(device, run.stream, (uint64_t)(uintptr_t)blocks[i].ptr, scratch, 1));
        if (i == 0)
            MUST_IN_RUN(spw_pool_free(manager, &blocks[0], run.stream) == SPW_OK);
    }
    (void)worked(spw__device_settle(device, run.stream));
    if (blocks[1].ptr)
        MUST_IN_RUN(spw_pool_free(manager, &blocks[1], below(2) ? run.stream : NULL) == SPW_OK);
}

static void step(void)
{
    struct held *held = &run.held[below(BUFFERS)];
    const unsigned what = below(100);
    if (what < 10)
        use_raw();
    else if (what < 14)
        (void)worked(spw_pool_trim(manager, SPW_DEVICE, 0, NULL));
    else if (!held->buffer)
        make(held);
    else if (what < 40)
        look_at(held, random_place(), below(4) ? 0 : SPW_MAP_HERE);
    else if (what < 50)
        read_on_stream(held);
    else if (what < 60)
        look_after_stream(held);
    else if (what < 70)
        look_by_ticket(held);
    else if (what < 80)
        rewrite(held);
    else
        let_go(held);
}

static unsigned count_entries(const char *path)
{
    unsigned n = 0;
    DIR *dir = opendir(path);
    MUST(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

static void work(void)
{
    const bool has_stream = worked(spw_stream_create(manager, &run.stream));
    for (unsigned i = 0; i < BUFFERS; i++)
        make(&run.held[i]);
    for (unsigned i = 0; i < STEPS; i++)
        step();
    for (unsigned i = 0; i < BUFFERS; i++)
        if (run.held[i].buffer)
            look_at(&run.held[i], SPW_HOST, 0);
    if (has_stream)
        (void)worked(spw_stream_destroy(manager, run.stream));
}

/* Everything that still can be is right, and everything goes. */
static void finish(void)
{
    const bool lost = spw__device_is_lost(manager->device);
    MUST_IN_RUN(!lost || run.scene.kind == STICKY);
    for (unsigned i = 0; i < BUFFERS; i++) {
        const unsigned before = run.errors;
        if (!run.held[i].buffer)
            continue;
        look_at(&run.held[i], SPW_HOST, 0);
        MUST_IN_RUN(lost || run.errors == before);
        let_go(&run.held[i]);
    }
    settle();
    MUST_IN_RUN(is_quiet() && stats.buffers == 0);
    MUST_IN_RUN(stats.device_lost == lost);
    MUST_IN_RUN(spw_manager_destroy(manager) == SPW_OK);
    manager = NULL;
}

static bool try_to_create(const char *format)
{
    char spec[1024];
    spw_options options;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(spec, sizeof spec, format, folder);
#pragma GCC diagnostic pop
    spw_options_init(&options);
    options.spec = spec;
    options.log = keep_line;
    options.default_timeout_ms = 10000;
    const int rc = spw_manager_create(&options, &manager);
    if (rc == SPW_OK) {
        manager->patience_max_ns = 0; /* thousands of runs: nobody is to wait for what nobody releases */
        return true;
    }
    MUST_IN_RUN(!run.quiet && run.scene.phase == CREATE && manager == NULL);
    MUST_IN_RUN(rc == SPW_EDEVICE || rc == SPW_ENOMEM);
    MUST_IN_RUN(says("CUDA_ERROR_") || says("an error without a name") || says("no room") || says("no memory") ||
                says("no 2097152 bytes of address space"));
    return false;
}

/* Two entry points are called only when another call has failed. */
static void arm(bool on)
{
    static const spw__cu_result results[] = {SPW__CU_ERROR_OPERATING_SYSTEM, SPW__CU_ERROR_OUT_OF_MEMORY,
                                             SPW__CU_ERROR_ILLEGAL_ADDRESS};
    const struct scene *scene = &run.scene;
    if (scene->entry == SPW__ENTRY_get_error_name)
        spw__sim_fail(SPW__ENTRY_memcpy_d_to_h_async, on ? 2 : 0, 1, SPW__CU_ERROR_OPERATING_SYSTEM);
    if (scene->entry == SPW__ENTRY_mem_get_info)
        spw__sim_fail(SPW__ENTRY_mem_alloc, on ? 1 : 0, 1, SPW__CU_ERROR_OUT_OF_MEMORY);
    spw__sim_fail(scene->entry, on ? scene->n : 0, 1, results[scene->kind]);
}

/* True when the call that is to fail was reached. */
static bool play(const struct scene *scene, bool quiet)
{
    const long left = spw__sim_left_behind();
    const unsigned threads = count_entries("/proc/self/task"), files = count_entries("/proc/self/fd");
    memset(&run, 0, sizeof run);
    run.scene = *scene;
    run.quiet = quiet;
    run.state = UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)scene->n;
    spec_now = specs[scene->spec];
    (void)alarm(RUN_SECONDS);
    if (scene->phase == CREATE && !quiet)
        arm(true);
    if (try_to_create(spec_now)) {
        if (scene->phase == WORK && !quiet)
            arm(true);
        work();
        finish();
    }
    const bool reached = quiet || spw__sim_calls(scene->entry) >= scene->n;
    arm(false);
    /* What a call was to give back when it lost the device is the lost context's: memory, and where it was mapped. */
    MUST_IN_RUN(spw__sim_left_behind() - left <= (scene->kind == STICKY && !quiet ? 2 : 0));
    while (!quiet && count_entries("/proc/self/task") != threads) /* one that was joined may still be listed */
        (void)sched_yield();
    MUST_IN_RUN(quiet || count_entries("/proc/self/fd") == files);
    (void)alarm(0);
    return reached;
}

/* Failures of every kind of the n-th call; the number of runs in which it was reached. */
static unsigned play_call(enum spw__driver_entry entry, long n, enum phase phase)
{
    unsigned reached = 0;
    for (unsigned spec = 0; spec < SPECS; spec++) {
        struct scene scene = {entry, n, 0, phase, spec};
        for (bool more = true; more && scene.kind < KINDS; scene.kind++) {
            if (entry == SPW__ENTRY_event_destroy && scene.kind == STICKY)
                continue; /* the event is the lost context's, and nobody could ever free it */
            more = play(&scene, false);
            reached += more;
        }
    }
    return reached;
}

static bool is_long, is_single; /* as the program was called */
static struct scene single;

static void play_entry(enum spw__driver_entry entry)
{
    static const long sample[] = {1, 4, 20};
    unsigned reached[PHASES] = {0};
    for (enum phase phase = 0; phase < PHASES; phase++) {
        unsigned now = 1;
        for (long i = 0; now && i < (is_long ? 50 : (long)(sizeof sample / sizeof sample[0])); i++) {
            now = play_call(entry, is_long ? i + 1 : sample[i], phase);
            reached[phase] += now;
        }
    }
    (void)printf("%-32s reached in %3u runs of create, %3u of work\n", entry_names[entry], reached[CREATE],
                 reached[WORK]);
}

/* The run that was asked for; _i: else of that entry. */
START_TEST(a_failing_call_leaks_nothing_and_spoils_nothing)
{
    (void)signal(SIGALRM, takes_too_long);
    make_folder();
    (void)play(&(struct scene){.n = 1}, true); /* what is opened and started once in a process is there now */
    if (is_single) {
        const bool reached = play(&single, false);
        (void)printf("%s, %u errors\n", reached ? "reached" : "not reached", run.errors);
    } else {
        play_entry((enum spw__driver_entry)_i);
    }
    remove_folder();
}
END_TEST

START_TEST(without_a_fault_nothing_fails)
{
    make_folder();
    for (long n = 1; n <= 8; n++)
        (void)play(&(struct scene){.n = n, .spec = (unsigned)n % SPECS}, true);
    remove_folder();
}
END_TEST

static int find(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    (void)fprintf(stderr, "device_faults: what is \"%s\"?\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    is_long = argc == 2 && strcmp(argv[1], "--long") == 0;
    is_single = argc == 6;
    if (is_single) {
        single.entry = (enum spw__driver_entry)find(argv[1], entry_names, SPW__ENTRY_COUNT);
        single.n = strtol(argv[2], NULL, 10);
        single.kind = (enum kind)find(argv[3], kind_names, KINDS);
        single.phase = (enum phase)find(argv[4], phase_names, PHASES);
        single.spec = (unsigned)strtoul(argv[5], NULL, 10) % SPECS;
    }
    Suite *suite = suite_create("device_faults");
    TCase *tcase = tcase_create("faults");
    tcase_set_timeout(tcase, 3600);
    tcase_add_test(tcase, without_a_fault_nothing_fails);
    tcase_add_loop_test(tcase, a_failing_call_leaks_nothing_and_spoils_nothing, 0, is_single ? 1 : SPW__ENTRY_COUNT);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
