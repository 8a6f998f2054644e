/* Packed rows: columns to rows and back, a column at a time, so that the compiler sees one width in each loop.
 * Neighbour: rows.c. */
#include "rows.h"

#include <string.h>

void eng_format_init(struct eng_format *format, const struct eng_source *source)
{
    format->row_bytes = 0;
    for (unsigned c = 0; c < ENG_COLUMNS; c++) {
        format->width[c] = source->width[c];
        format->offset[c] = format->row_bytes;
        format->row_bytes += source->width[c];
    }
}

/* Rows are 16 to 32 bytes, so that values of 8 bytes may lie at any multiple of 4: always through memcpy. */
static void pack_column(const char *from, unsigned width, size_t n, char *to, size_t stride)
{
    if (width == 4) {
        for (size_t i = 0; i < n; i++)
            memcpy(to + i * stride, from + i * 4, 4);
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(to + i * stride, from + i * 8, 8);
    }
}

static void unpack_column(const char *from, unsigned width, size_t n, size_t stride, int64_t *to)
{
    if (width == 4) {
        for (size_t i = 0; i < n; i++) {
            int32_t value;
            memcpy(&value, from + i * stride, 4);
            to[i] = value;
        }
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(&to[i], from + i * stride, 8);
    }
}

void eng_format_pack(const struct eng_format *format, const void *const columns[ENG_COLUMNS], size_t first, size_t n,
                     char *rows)
{
    for (unsigned c = 0; c < ENG_COLUMNS; c++)
        pack_column((const char *)columns[c] + first * format->width[c], format->width[c], n, rows + format->offset[c],
                    format->row_bytes);
}

void eng_format_unpack_keys(const struct eng_format *format, const char *rows, size_t n, struct eng_batch *batch)
{
    unpack_column(rows + format->offset[ENG_KEY1], format->width[ENG_KEY1], n, format->row_bytes, batch->key1);
    unpack_column(rows + format->offset[ENG_KEY2], format->width[ENG_KEY2], n, format->row_bytes, batch->key2);
}

void eng_format_unpack(const struct eng_format *format, const char *rows, size_t n, struct eng_batch *batch)
{
    eng_format_unpack_keys(format, rows, n, batch);
    unpack_column(rows + format->offset[ENG_FACTOR], format->width[ENG_FACTOR], n, format->row_bytes, batch->factor);
    unpack_column(rows + format->offset[ENG_ADDEND], format->width[ENG_ADDEND], n, format->row_bytes, batch->addend);
}
