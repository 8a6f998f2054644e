/* Errors of the reference engine. Neighbours: every other file here. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <spillway/spillway.h>

int eng_fail(struct eng_error *error, enum eng_status status, const char *format, ...)
{
    va_list args;
    error->status = status;
    error->code = 0;
    va_start(args, format);
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return -1;
}

int eng_fail_library(struct eng_error *error, int code, const char *format, ...)
{
    const spw_error_info *info = spw_error_detail();
    va_list args;
    error->status = ENG_FAILED;
    error->code = code;
    va_start(args, format);
    int used = vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    if (used < 0 || (size_t)used >= sizeof error->text)
        return -1;
    const char *text = info->code == code && info->message[0] != 0 ? info->message : spw_strerror(code);
    (void)snprintf(error->text + used, sizeof error->text - (size_t)used, ": %s", text);
    return -1;
}
