/* What the tests of streams share: streams that stand still until they are let go. */
#ifndef SPW_TESTS_STREAM_FIXTURE_H
#define SPW_TESTS_STREAM_FIXTURE_H

#include "pool_fixture.h"

#include <semaphore.h>

/* A stream of the simulated device that stands still until it is let go. */
struct gate {
    spw_stream *stream;
    sem_t *open; /* the stream's work waits for it */
};

static inline struct gate open_gate(void)
{
    struct gate gate = {.open = malloc(sizeof *gate.open)};
    ck_assert_ptr_nonnull(gate.open);
    ck_assert_int_eq(sem_init(gate.open, 0, 0), 0);
    const int rc = spw_stream_create(manager, &gate.stream);
    ck_assert_msg(rc == SPW_OK, "%s: %s", spw_error_name(rc), spw_error_detail()->message);
    return gate;
}

static inline void stand_still(void *open)
{
    while (sem_wait(open) != 0) {
    }
}

/* Enqueues work that is not done until let_go. */
static inline void hold(struct gate *gate)
{
    const int rc = spw_device_launch(manager, gate->stream, stand_still, gate->open);
    ck_assert_msg(rc == SPW_OK, "%s: %s", spw_error_name(rc), spw_error_detail()->message);
}

static inline void let_go(struct gate *gate)
{
    ck_assert_int_eq(sem_post(gate->open), 0);
}

static inline int end_gate(struct gate *gate)
{
    const int rc = spw_stream_destroy(manager, gate->stream);
    ck_assert_int_eq(sem_destroy(gate->open), 0);
    free(gate->open);
    return rc;
}

static inline void close_gate(struct gate *gate)
{
    ck_assert_int_eq(end_gate(gate), SPW_OK);
}

static inline spw_map_options on_stream(spw_stream *stream, int64_t timeout_ms)
{
    spw_map_options options;
    spw_map_options_init(&options);
    options.stream = stream;
    options.wait.timeout_ms = timeout_ms;
    return options;
}

/* Maps at place for work on stream, without waiting for anything. */
static inline spw_view must_map_on(spw_buffer *buffer, spw_place place, uint32_t flags, spw_stream *stream)
{
    spw_view view;
    const spw_map_options options = on_stream(stream, 0);
    const int rc = spw_map(buffer, place, flags, &options, &view);
    ck_assert_msg(rc == SPW_OK, "map: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    ck_assert_uint_eq(view.place, place);
    return view;
}

static inline void must_unmap(spw_buffer *buffer, spw_view *view, spw_stream *stream)
{
    ck_assert_int_eq(spw_unmap(buffer, view, stream), SPW_OK);
}

/* The stream has a use of the buffer, where it lies, that lasts until it is let go. */
static inline void use_until_let_go(spw_buffer *buffer, struct gate *gate)
{
    spw_view view = must_map_on(buffer, spw_buffer_place(buffer), SPW_MAP_READ, gate->stream);
    hold(gate);
    must_unmap(buffer, &view, gate->stream);
}

#endif
