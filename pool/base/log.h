/* Log lines: what is worth knowing and is no error of a call. To the manager's callback, or warnings to stderr.
 * Threads: any. Never under a lock. */
#ifndef SPW_BASE_LOG_H
#define SPW_BASE_LOG_H

#include <spillway/manager.h>

enum { SPW__LOG_ERROR = 1, SPW__LOG_WARN = 2, SPW__LOG_INFO = 3, SPW__LOG_DEBUG = 4 };

struct spw__log {
    spw_log_fn fn; /* NULL: lines up to SPW__LOG_WARN go to stderr */
    void *arg;
};

/* log may be NULL. */
void spw__logf(const struct spw__log *log, int level, const char *format, ...) SPW_PRINTF(3, 4);

#endif
