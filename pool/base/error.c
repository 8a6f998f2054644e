/* Error texts and the per-thread detail. Neighbours: every module, through spw__fail. */
#include "pool/base/error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static _Thread_local spw_error_info detail;

const char *spw_strerror(int code)
{
    switch (code) {
    case SPW_OK: return "success";
#define SPW_X(name, value, text) \
    case value: return text;
        SPW_ERROR_LIST(SPW_X)
#undef SPW_X
    default: return "unknown error";
    }
}

const char *spw_error_name(int code)
{
    switch (code) {
    case SPW_OK: return "SPW_OK";
#define SPW_X(name, value, text) \
    case value: return "SPW_" #name;
        SPW_ERROR_LIST(SPW_X)
#undef SPW_X
    default: return "SPW_E?";
    }
}

const char *spw_tier_name(spw_tier tier)
{
    static const char *const names[SPW_TIER_COUNT] = {"device", "pinned_host", "host", "disk", "meta"};
    return (unsigned)tier < SPW_TIER_COUNT ? names[tier] : "?";
}

const spw_error_info *spw_error_detail(void)
{
    return &detail;
}

int spw__fail(int code, const char *format, ...)
{
    va_list args;
    memset(&detail, 0, offsetof(spw_error_info, message));
    detail.code = code;
    va_start(args, format);
    (void)vsnprintf(detail.message, sizeof detail.message, format, args);
    va_end(args);
    return code;
}

int spw__fail_info(const spw_error_info *info, int code, const char *format, ...)
{
    va_list args;
    if (info != &detail)
        memcpy(&detail, info, offsetof(spw_error_info, message));
    detail.code = code;
    va_start(args, format);
    (void)vsnprintf(detail.message, sizeof detail.message, format, args);
    va_end(args);
    return code;
}

void spw__error_save(spw_error_info *info)
{
    *info = detail;
}

int spw__error_restore(const spw_error_info *info)
{
    if (info != &detail)
        detail = *info;
    return detail.code;
}
