/* What the subcommands of `spillway` share. One file each: spec.c, plan.c; main.c picks one.
 *
 * Exit status: 0 done; 2 the arguments, the string or the log are wrong; 1 everything else.
 */
#ifndef SPW_CMD_CMD_H
#define SPW_CMD_CMD_H

#include <stdint.h>

#include <spillway/export.h>

enum cmd_status { CMD_DONE = 0, CMD_FAILED = 1, CMD_USAGE = 2 };

/* "1234567890 bytes", with " (1.15 GiB)" behind it from 1 KiB on. */
#define CMD_SIZE_MAX 64
const char *cmd_size(uint64_t bytes, char text[CMD_SIZE_MAX]);

/* Says "spillway SUBCOMMAND: ..." on standard error, in one line, and returns status. */
enum cmd_status cmd_fail(enum cmd_status status, const char *subcommand, const char *format, ...) SPW_PRINTF(3, 4);

/* The subcommands: arguments without the command's and the subcommand's name. */
enum cmd_status cmd_spec(int argc, char *const argv[]);
enum cmd_status cmd_plan(int argc, char *const argv[]);

#endif
