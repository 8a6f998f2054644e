/* Errors of the reference engine: one line that names the thing, and the exit status it leads to.
 *
 * Threads: an eng_error belongs to one thread. Fallible functions return 0, or -1 with *error filled in.
 */
#ifndef ENGINE_ERROR_H
#define ENGINE_ERROR_H

enum eng_status {
    ENG_FAILED = 1, /* input, system, library */
    ENG_USAGE = 2,  /* the command line asks for what cannot be */
    ENG_STOPPED     /* by a signal: the text goes on behind "interrupted", the status is the program's to tell */
};

struct eng_error {
    enum eng_status status;
    int code; /* the library's code behind it, 0 if none */
    char text[1024];
};

/* Fills in *error and returns -1. */
int eng_fail(struct eng_error *error, enum eng_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a library call that returned code, with the library's own detail of this thread. */
int eng_fail_library(struct eng_error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
