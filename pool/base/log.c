/* Log lines to the callback or to stderr. */
#include "pool/base/log.h"

#include <stdarg.h>
#include <stdio.h>

void spw__logf(const struct spw__log *log, int level, const char *format, ...)
{
    char line[512];
    va_list args;
    if ((!log || !log->fn) && level > SPW__LOG_WARN)
        return;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (log && log->fn)
        log->fn(log->arg, level, line);
    else
        (void)fprintf(stderr, "spillway: %s\n", line);
}
