/* Shared by the subcommands: sizes and errors. */
#include "src/cmd/cmd.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

const char *cmd_size(uint64_t bytes, char text[CMD_SIZE_MAX])
{
    static const char units[] = "KMGTPE";
    double scaled = (double)bytes / 1024;
    unsigned unit = 0;
    for (; scaled >= 1024 && units[unit + 1] != '\0'; unit++)
        scaled /= 1024;
    if (bytes < 1024)
        (void)snprintf(text, CMD_SIZE_MAX, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
    else
        (void)snprintf(text, CMD_SIZE_MAX, "%" PRIu64 " bytes (%.4g %ciB)", bytes, scaled, units[unit]);
    return text;
}

enum cmd_status cmd_fail(enum cmd_status status, const char *subcommand, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "spillway %s: ", subcommand);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return status;
}
