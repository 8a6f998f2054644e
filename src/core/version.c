/* The version of the library that is running, from the numbers in version.h. */
#include <spillway/version.h>

#define TEXT_(number) #number
#define TEXT(number) TEXT_(number)

const char *spw_version(void)
{
    return TEXT(SPW_VERSION_MAJOR) "." TEXT(SPW_VERSION_MINOR) "." TEXT(SPW_VERSION_PATCH);
}
