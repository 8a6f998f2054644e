#include "pool/source_device.h"

#include "pool/base/error.h"

bool spw__pinned_register(struct spw__device *device, void *base, uint64_t bytes, const struct spw__log *log)
{
    spw_error_info kept;
    spw__error_save(&kept);
    const int rc = spw__device_host_register(device, base, bytes);
    if (rc != SPW_OK)
        spw__logf(log, SPW__LOG_WARN, "pinned_host memory of %llu bytes is not registered with the device, and copies "
                                      "take longer: %s", (unsigned long long)bytes, spw_error_detail()->message);
    (void)spw__error_restore(&kept);
    return rc == SPW_OK;
}
