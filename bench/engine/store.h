/* The engine's view of the library: the few calls that it makes on buffers, with its errors and its habits in one
 * place.
 *
 * Threads: a store is read-only once set up; its calls may be made from any thread.
 */
#ifndef ENGINE_STORE_H
#define ENGINE_STORE_H

#include <spillway/spillway.h>

#include "error.h"

struct eng_store {
    spw_manager *manager;
    spw_place work;     /* where rows are worked on: the device, or host, or pinned_host when there is no host tier */
    int has_disk;       /* whether --disk is worth proposing */
    spw_cancel *cancel; /* ends waits */
};

/* Reports a library call that failed on the buffers of tag: in the library's words, or with the flag that would help
 * when nothing could go to disk. */
int eng_store_fail(const struct eng_store *store, int code, const char *doing, const char *tag,
                   struct eng_error *error);

/* Takes in a buffer of bytes wherever there is room. Blocks while colder buffers go to disk. */
int eng_store_admit(const struct eng_store *store, const char *tag, size_t bytes, spw_buffer **out,
                    struct eng_error *error);

/* Takes in a buffer with the given content, sealed. Blocks likewise. */
int eng_store_keep(const struct eng_store *store, const char *tag, const void *content, size_t bytes, spw_buffer **out,
                   struct eng_error *error);

/* Maps a sealed buffer for reading by work at the work place. On the device for what stream is given next; the call
 * blocks while room is made there. On the host where the CPU can reach it: where it lies, if that is host memory, else
 * at the work place; stream is NULL then, and the call blocks while it is brought there. */
int eng_store_map(const struct eng_store *store, spw_buffer *buffer, spw_stream *stream, spw_view *view,
                  struct eng_error *error);

/* Closes the view; eng_store_drop also gives the buffer back. */
void eng_store_unmap(spw_buffer *buffer, spw_view *view);
void eng_store_drop(spw_buffer *buffer, spw_view *view);

/* A new buffer at the work place, mapped for writing: by what stream is given next, if not NULL. Blocks while colder
 * buffers make room. */
int eng_store_alloc(const struct eng_store *store, const char *tag, size_t bytes, spw_stream *stream, spw_buffer **out,
                    spw_view *view, struct eng_error *error);

#endif
