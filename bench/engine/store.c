/* Calls into the library. Neighbours: load.c, worker.c and join.c, which make them. */
#include "store.h"

int eng_store_fail(const struct eng_store *store, int code, const char *doing, const char *tag, struct eng_error *error)
{
    if ((code != SPW_ENOMEM && code != SPW_EFRAG && code != SPW_ETIMEDOUT) || store->has_disk)
        return eng_fail_library(error, code, "cannot %s %s", doing, tag);
    (void)eng_fail(error, ENG_FAILED, "cannot %s %s: the data does not fit in memory: --disk DIR lets it go to disk",
                   doing, tag);
    error->code = code;
    return -1;
}

int eng_store_admit(const struct eng_store *store, const char *tag, size_t bytes, spw_buffer **out,
                    struct eng_error *error)
{
    spw_admit_options options;
    spw_admit_options_init(&options);
    options.tag = tag;
    options.wait.cancel = store->cancel;
    int code = spw_admit(store->manager, bytes, &options, out);
    return code == 0 ? 0 : eng_store_fail(store, code, "take in", tag, error);
}

int eng_store_keep(const struct eng_store *store, const char *tag, const void *content, size_t bytes, spw_buffer **out,
                   struct eng_error *error)
{
    if (eng_store_admit(store, tag, bytes, out, error) != 0)
        return -1;
    int code = spw_buffer_write(*out, 0, content, bytes);
    if (code == 0)
        code = spw_buffer_seal(*out);
    if (code == 0)
        return 0;
    (void)eng_store_fail(store, code, "fill", tag, error);
    (void)spw_buffer_release(*out);
    *out = NULL;
    return -1;
}

static int on_device(spw_place place)
{
    return place != SPW_PLACE_NONE && SPW_PLACE_TIER(place) == SPW_TIER_DEVICE;
}

int eng_store_map(const struct eng_store *store, spw_buffer *buffer, spw_stream *stream, spw_view *view,
                  struct eng_error *error)
{
    spw_map_options options;
    spw_map_options_init(&options);
    options.stream = stream;
    options.wait.cancel = store->cancel;
    uint32_t here = on_device(store->work) || on_device(spw_buffer_place(buffer)) ? 0 : SPW_MAP_HERE;
    int code = spw_map(buffer, store->work, SPW_MAP_READ | here, &options, view);
    if (code == 0 && here != 0 && on_device(view->place)) {
        (void)spw_unmap(buffer, view, NULL);
        code = spw_map(buffer, store->work, SPW_MAP_READ, &options, view);
    }
    return code == 0 ? 0 : eng_store_fail(store, code, "map", spw_buffer_tag(buffer), error);
}

void eng_store_unmap(spw_buffer *buffer, spw_view *view)
{
    (void)spw_unmap(buffer, view, NULL);
}

void eng_store_drop(spw_buffer *buffer, spw_view *view)
{
    (void)spw_unmap(buffer, view, NULL);
    (void)spw_buffer_release(buffer);
}

int eng_store_alloc(const struct eng_store *store, const char *tag, size_t bytes, spw_stream *stream, spw_buffer **out,
                    spw_view *view, struct eng_error *error)
{
    spw_alloc_options options;
    spw_map_options map;
    spw_alloc_options_init(&options);
    spw_map_options_init(&map);
    options.tag = tag;
    options.wait.cancel = map.wait.cancel = store->cancel;
    map.stream = stream;
    int code = spw_alloc(store->manager, store->work, bytes, &options, out);
    if (code != 0)
        return eng_store_fail(store, code, "allocate", tag, error);
    code = spw_map(*out, store->work, SPW_MAP_WRITE | SPW_MAP_DISCARD, &map, view);
    if (code == 0)
        return 0;
    (void)eng_store_fail(store, code, "map", tag, error);
    (void)spw_buffer_release(*out);
    *out = NULL;
    return -1;
}
