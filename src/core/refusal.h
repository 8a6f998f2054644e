/* Refusals: the errors of requests that were not granted, with what was short, by how much, and what would help.
 * Threads: any; not under a lock. */
#ifndef SPW_CORE_REFUSAL_H
#define SPW_CORE_REFUSAL_H

#include "src/core/pressure.h"

/* Turns what ended a request into the error of the call, with its detail. */
int spw__request_conclude(const struct spw__request *request, int rc);

#endif
