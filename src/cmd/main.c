/* spillway: the command. Picks the subcommand. Neighbours: spec.c, plan.c. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <spillway/version.h>

#include "src/cmd/cmd.h"

static const char help[] =
    "usage: spillway spec STRING                      explain a configuration string\n"
    "       spillway plan FILE [--pools N] [--json]   propose the pools that serve an allocation log\n"
    "       spillway --help | --version\n"
    "\n"
    "spec STRING   prints the tiers and their pools, the route of requests, the folders and all settings; of a wrong\n"
    "              string the error, with a caret under the byte\n"
    "plan FILE     searches for the specification with the least memory that serves every request of the log, and\n"
    "              prints it as a value of ge.flowGraphMemMaxSize (as a section, when it exceeds the bounds of one or\n"
    "              the log is of another place), beside what a single pool needs. FILE is a log of RMM's, of Umpire's\n"
    "              or of Spillway's own\n"
    "  --pools N   at most N pools, 1 to 128 (128)\n"
    "  --place P   the place to plan for, of a log in Spillway's form: device, pinned_host, host\n"
    "  --json      the result as one JSON object\n"
    "\n"
    "exit status: 0 done; 2 wrong arguments, string or log; 1 everything else\n";

int main(int argc, char *argv[])
{
    enum cmd_status status = CMD_DONE;
    if (argc < 2) {
        fprintf(stderr, "spillway: a subcommand is wanted: spec or plan (--help lists all)\n");
        return CMD_USAGE;
    }
    const bool knows = strcmp(argv[1], "spec") == 0 || strcmp(argv[1], "plan") == 0;
    if (strcmp(argv[1], "--help") == 0 || (knows && argc == 3 && strcmp(argv[2], "--help") == 0))
        fputs(help, stdout);
    else if (strcmp(argv[1], "--version") == 0)
        printf("spillway %s\n", spw_version());
    else if (strcmp(argv[1], "spec") == 0)
        status = cmd_spec(argc - 2, argv + 2);
    else if (strcmp(argv[1], "plan") == 0)
        status = cmd_plan(argc - 2, argv + 2);
    else {
        fprintf(stderr, "spillway: no subcommand '%s': spec or plan is wanted (--help lists all)\n", argv[1]);
        return CMD_USAGE;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "spillway: cannot write to standard output\n");
        return CMD_FAILED;
    }
    return (int)status;
}
