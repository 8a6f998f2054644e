/* Failing with detail: every error that leaves the library goes through spw__fail or spw__fail_info.
 *
 * Threads: the detail is per thread. Work done by another thread on a caller's behalf keeps a spw_error_info of its own
 * and the waiting call restores it with spw__error_restore. What a call does on behalf of others, or before it fails
 * for a reason of its own, stands between spw__error_save and spw__error_restore: the caller's detail is its own.
 */
#ifndef SPW_BASE_ERROR_H
#define SPW_BASE_ERROR_H

#include <spillway/error.h>

/* Records code and a one-line message as the calling thread's detail (all other fields 0) and returns code. */
int spw__fail(int code, const char *format, ...) SPW_PRINTF(2, 3);

/* The same, with every numeric field of *info kept; its code is set and its message is made from format. */
int spw__fail_info(const spw_error_info *info, int code, const char *format, ...) SPW_PRINTF(3, 4);

/* Copies the calling thread's detail, to be put back later. */
void spw__error_save(spw_error_info *info);

/* Makes *info the calling thread's detail and returns info->code. */
int spw__error_restore(const spw_error_info *info);

#endif
