/* Fuzzing of the configuration parser: whatever the bytes, it accepts or refuses them, and what it accepts formats to a
 * string that parses back to the same. With clang this is a libFuzzer target (-DSPW_LIBFUZZER -fsanitize=fuzzer); alone
 * it mutates a list of seeds for a number of rounds, always the same ones.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spillway/spillway.h>

static void require(int holds, const char *what, const char *text)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fuzz_spec: %s: \"%s\"\n", what, text);
    abort();
}

static int same_folders(const spw_spec *a, const spw_spec *b)
{
    for (uint32_t i = 0; i < a->n_folders; i++)
        if (a->folders[i].path_length != b->folders[i].path_length ||
            a->folders[i].quota_bytes != b->folders[i].quota_bytes ||
            memcmp(a->folders[i].path, b->folders[i].path, a->folders[i].path_length) != 0)
            return 0;
    return a->n_folders == b->n_folders;
}

static int same_pools(const spw_spec *a, const spw_spec *b)
{
    for (unsigned tier = 0; tier < 3; tier++)
        if (a->n_pools[tier] != b->n_pools[tier] ||
            memcmp(a->pools[tier], b->pools[tier], a->n_pools[tier] * sizeof a->pools[tier][0]) != 0)
            return 0;
    return 1;
}

/* The rest of the struct: numbers without padding between them. */
static int same_settings(const spw_spec *a, const spw_spec *b)
{
    const size_t first = offsetof(spw_spec, meta_bytes);
    return memcmp((const char *)a + first, (const char *)b + first, sizeof *a - first) == 0;
}

static void check_one(const char *text)
{
    static char formatted[1 << 18];
    static spw_spec parsed, again, before;
    static uint32_t order[SPW_SPEC_POOLS_MAX];
    memset(&before, 0x5a, sizeof before);
    parsed = before;
    const int rc = spw_spec_parse(text, &parsed);
    if (rc != SPW_OK) {
        require(rc == SPW_ESPEC, "neither accepted nor SPW_ESPEC", text);
        require(memcmp(&parsed, &before, sizeof parsed) == 0, "a refused string changed the spec", text);
        require(spw_error_detail()->offset_bytes <= strlen(text), "an offset beyond the string", text);
        return;
    }
    const size_t length = spw_spec_format(&parsed, formatted, sizeof formatted);
    require(length < sizeof formatted && length == strlen(formatted), "a wrong length", text);
    require(spw_spec_parse(formatted, &again) == SPW_OK, "its canonical form is refused", text);
    require(same_pools(&parsed, &again) && same_folders(&parsed, &again) && same_settings(&parsed, &again),
            "its canonical form says something else", text);
    for (unsigned tier = 0; tier < 3; tier++) {
        const size_t n = spw_spec_route(&parsed, (spw_tier)tier, 4096, order);
        require(n <= parsed.n_pools[tier], "a route longer than the pools", text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    check_one(text);
    free(text);
    return 0;
}

#ifndef SPW_LIBFUZZER
static const char *const seeds[] = {
    "10737418240",
    "10737418240,2147483648:2097152",
    "10737418240,2147483648:20971520,1073741824:2097152",
    "device=10G,2G:20M,1G:2M; pinned=64G,4G:2M; host=128G; disk=/nvme0/spill:500G,/nvme1/spill:500G; driver=auto",
    "host=4M;disk=/a:1,/b:c:2G,.; io=threads; io_threads=3; threads=0; verify=0; placement=address; piece=64K; meta=1M",
    "device=0; pinned_host=1024:1024; staging=18446744073709551615; device_id=255; driver=sim; io=uring",
    "device=20M; driver=sim:18446744073709551614; model=b200/1024; grow=vmm; host=1G",
    "device=20M; model=mem:180G,h2d:32G,d2h:30G,d2d:4T,duplex:21G,latency:10us/1024; driver=sim; grow=plain",
    "driver=sim; model=gh200-c2c,duplex:free,latency:999ns/3; device=1M; headroom=3; numa=1",
};
static const char alphabet[] = "0123456789KMGT,:;= /.devicpnhostkmagrlubfxyw_-\n\xff";

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % below;
}

int main(int argc, char **argv)
{
    const long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 200000;
    char text[512];
    for (long round = 0; round < rounds; round++) {
        const char *seed = seeds[draw(sizeof seeds / sizeof seeds[0])];
        size_t length = strlen(seed);
        memcpy(text, seed, length);
        for (uint32_t edits = draw(6); edits > 0; edits--) {
            const uint32_t at = draw((uint32_t)length + 1);
            switch (draw(3)) {
            case 0: /* replace */
                if (at < length)
                    text[at] = alphabet[draw(sizeof alphabet - 1)];
                break;
            case 1: /* insert */
                memmove(text + at + 1, text + at, length - at);
                text[at] = alphabet[draw(sizeof alphabet - 1)];
                length++;
                break;
            default: /* delete */
                if (at < length) {
                    memmove(text + at, text + at + 1, length - at - 1);
                    length--;
                }
                break;
            }
        }
        (void)LLVMFuzzerTestOneInput((const uint8_t *)text, length);
    }
    (void)printf("%ld strings\n", rounds);
    return 0;
}
#endif
