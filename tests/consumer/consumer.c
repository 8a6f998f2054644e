/* A program that embeds Spillway from outside its tree, as a user's would: it sees the installed headers only. */
#include <spillway/spillway.h>

#include <stdio.h>
#include <string.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        const int code_ = (call);                                                                                      \
        if (code_ != SPW_OK) {                                                                                         \
            fprintf(stderr, "%s: %s: %s\n", #call, spw_error_name(code_), spw_error_detail()->message);                \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

int main(void)
{
    const size_t bytes = 1u << 20;
    spw_options options;
    spw_manager *manager = NULL;
    spw_buffer *buffer = NULL;
    spw_view view;

    spw_options_init(&options);
    options.spec = "host=4M";
    MUST(spw_manager_create(&options, &manager));
    MUST(spw_admit(manager, bytes, NULL, &buffer));
    MUST(spw_map(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_WRITE, NULL, &view));
    if (view.size != bytes)
        return 1;
    memset(view.data, 7, bytes);
    MUST(spw_unmap(buffer, &view, NULL));
    MUST(spw_buffer_seal(buffer));
    MUST(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view));
    if (((const unsigned char *)view.data)[bytes - 1] != 7)
        return 1;
    MUST(spw_unmap(buffer, &view, NULL));
    MUST(spw_buffer_release(buffer));
    MUST(spw_manager_destroy(manager));
    puts("ok");
    return 0;
}
