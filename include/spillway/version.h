/* Version of the library. */
#ifndef SPILLWAY_VERSION_H
#define SPILLWAY_VERSION_H

#include <spillway/export.h>

SPW_BEGIN_DECLS

#define SPW_VERSION_MAJOR 0
#define SPW_VERSION_MINOR 1
#define SPW_VERSION_PATCH 0

/* Version of the library that is running, for example "0.1.0". Never NULL, never freed. Any thread. Since 0.1. */
SPW_API const char *spw_version(void);

SPW_END_DECLS

#endif
