/* The steps of one segment. Neighbours: mover.c schedules, io/ transfers, pool/device copies, integrity.c sums. */
#include "spill/transfer.h"

#include <errno.h>
#include <stdio.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/base/units.h"
#include "spill/copy.h"
#include "spill/integrity.h"

static void *cpu(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static bool on_cpu(const struct spw__end *end)
{
    return end->tier == SPW_TIER_PINNED_HOST || end->tier == SPW_TIER_HOST;
}

static bool is_disk(const struct spw__end *end)
{
    return end->tier == SPW_TIER_DISK;
}

static uint32_t padded(const struct spw__mover *mover, uint32_t bytes)
{
    return (uint32_t)spw__round_up(bytes, mover->block_bytes);
}

/* Memory that the disk can read and write without a copy through staging. */
static bool is_direct(const struct spw__mover *mover, const struct spw__end *memory, uint64_t bytes)
{
    const uint64_t block = mover->block_bytes;
    return on_cpu(memory) && memory->address % block == 0 && spw__round_up(bytes, block) <= memory->capacity;
}

/* Records a move's first failure. */
static void move_fail(struct spw__move *move, int status, int os_errno, uint64_t offset, const char *reason)
{
    if (move->status != SPW_OK)
        return;
    move->status = status;
    move->os_errno = os_errno;
    move->failed_offset = offset;
    (void)snprintf(move->reason, sizeof move->reason, "%.*s", (int)sizeof move->reason - 1, reason);
}

static struct spw__unit *find_unit(struct spw__mover *mover)
{
    for (unsigned i = 0; i < SPW__UNITS; i++)
        if (mover->units[i].phase == SPW__PHASE_IDLE)
            return &mover->units[i];
    return NULL;
}

static int take_slot(struct spw__mover *mover)
{
    for (unsigned i = 0; i < mover->n_slots; i++)
        if (!mover->slot_busy[i]) {
            mover->slot_busy[i] = true;
            return (int)i;
        }
    return -1;
}

static char *slot_data(const struct spw__mover *mover, int slot)
{
    return (char *)mover->config.staging + (uint64_t)slot * mover->segment_bytes;
}

static void set_phase(struct spw__unit *unit, enum spw__phase phase, struct spw__event *event)
{
    unit->mover->n_events += (unsigned)(event != NULL) - (unsigned)(unit->event != NULL);
    unit->event = event;
    unit->phase = phase;
}

static void finish_unit(struct spw__unit *unit)
{
    struct spw__mover *mover = unit->mover;
    if (unit->event)
        spw__device_event_put(mover->config.device, unit->event);
    set_phase(unit, SPW__PHASE_IDLE, NULL);
    if (unit->slot >= 0)
        mover->slot_busy[unit->slot] = false;
    unit->move->units--;
    unit->move = NULL;
    mover->n_busy--;
}

static void fail_unit(struct spw__unit *unit, int status, int os_errno, const char *reason)
{
    move_fail(unit->move, status, os_errno, unit->offset, reason);
    finish_unit(unit);
}

/* A copy that was enqueued but cannot be waited for may still run: let it, before its memory is used again. */
static void fail_device(struct spw__unit *unit)
{
    const struct spw__mover *mover = unit->mover;
    move_fail(unit->move, SPW_EDEVICE, 0, unit->offset, spw_error_detail()->message);
    (void)spw__device_synchronize(mover->config.device, mover->to_device);
    (void)spw__device_synchronize(mover->config.device, mover->from_device);
    finish_unit(unit);
}

static uint64_t sum_of(const struct spw__unit *unit, const void *data)
{
    return spw__integrity_segment(unit->move->identity, unit->offset / unit->mover->segment_bytes, data, unit->bytes);
}

static void io_done(struct spw__io_req *req);

static void start_io(struct spw__unit *unit, void *data)
{
    struct spw__mover *mover = unit->mover;
    const struct spw__move *move = unit->move;
    const bool write = is_disk(&move->to);
    const struct spw__extent *extent = write ? &move->to.extent : &move->from.extent;
    if (write && mover->config.verify)
        unit->move->found_sum += sum_of(unit, data);
    unit->req.fd = spw__store_fd(mover->config.store, extent->folder);
    unit->req.write = write;
    unit->req.data = data;
    unit->req.offset = extent->offset + unit->offset;
    unit->req.bytes = padded(mover, unit->bytes);
    unit->req.done = io_done;
    set_phase(unit, SPW__PHASE_IO, NULL);
    const int rc = spw__io_submit(mover->io, &unit->req);
    if (rc != SPW_OK)
        fail_unit(unit, SPW_EIO, EIO, "the transfer could not be submitted");
}

/* Enqueues a copy that begins or ends on the device, after the use; memory is the CPU's side of it, NULL for a copy
 * within the device. */
static int enqueue_copy(struct spw__mover *mover, bool to_device, uint64_t to, uint64_t from, void *memory,
                        uint64_t bytes, const struct spw__use *after)
{
    struct spw__device *device = mover->config.device;
    const spw__stream stream = spw__mover_copy_stream(mover, to_device);
    const bool ordered = after && !spw__fault(SPW__FAULT_SKIP_COPY_ORDER);
    const int rc = ordered ? spw__device_event_order(device, stream, after->event) : SPW_OK;
    if (rc != SPW_OK)
        return rc;
    if (!memory)
        return spw__device_copy_within(device, stream, to, from, bytes);
    return to_device ? spw__device_copy_to(device, stream, to, memory, bytes)
                     : spw__device_copy_from(device, stream, memory, from, bytes);
}

int spw__mover_enqueue(struct spw__mover *mover, const struct spw__end *from, const struct spw__end *to, uint64_t bytes,
                       const struct spw__use *after)
{
    const bool to_device = to->tier == SPW_TIER_DEVICE;
    const struct spw__end *other = to_device ? from : to;
    return enqueue_copy(mover, to_device, to->address, from->address, on_cpu(other) ? cpu(other->address) : NULL, bytes,
                        after);
}

/* Enqueues the unit's part of its move; memory as above. */
static void start_device_copy(struct spw__unit *unit, enum spw__phase phase, bool to_device, void *memory)
{
    struct spw__mover *mover = unit->mover;
    const struct spw__move *move = unit->move;
    struct spw__event *event = NULL;
    int rc = enqueue_copy(mover, to_device, move->to.address + unit->offset, move->from.address + unit->offset, memory,
                          unit->bytes, move->use);
    if (rc == SPW_OK)
        rc = spw__device_event_record(mover->config.device, spw__mover_copy_stream(mover, to_device), &event);
    if (rc == SPW_OK)
        set_phase(unit, phase, event);
    else
        fail_device(unit);
}

static void after_read(struct spw__unit *unit)
{
    struct spw__move *move = unit->move;
    if (unit->mover->config.verify)
        move->found_sum += sum_of(unit, unit->req.data);
    if (move->to.tier == SPW_TIER_DEVICE) {
        start_device_copy(unit, SPW__PHASE_COPY_OUT, true, unit->req.data);
        return;
    }
    if (unit->slot >= 0)
        spw__copy_streaming(cpu(move->to.address + unit->offset), unit->req.data, unit->bytes);
    finish_unit(unit);
}

static void io_done(struct spw__io_req *req)
{
    struct spw__unit *unit = (struct spw__unit *)(void *)req;
    struct spw__mover *mover = unit->mover;
    if (req->result != 0) {
        const int status = req->result == ENOSPC || req->result == EDQUOT ? SPW_ENOSPC
                           : req->result == ENODATA                       ? SPW_ECORRUPT
                                                                          : SPW_EIO;
        fail_unit(unit, status, req->result, req->result == ENODATA ? "the spill file is too short" : "");
        return;
    }
    spw__count(mover->config.counters,
               mover->config.first_counter + (req->write ? SPW__MOVER_DISK_WRITTEN : SPW__MOVER_DISK_READ), req->bytes);
    if (req->write)
        finish_unit(unit);
    else
        after_read(unit);
}

void spw__transfer_poll_events(struct spw__mover *mover)
{
    for (unsigned i = 0; mover->n_events && i < SPW__UNITS; i++) {
        struct spw__unit *unit = &mover->units[i];
        if (!unit->event)
            continue;
        const int rc = spw__device_event_query(mover->config.device, unit->event);
        if (rc == SPW_EAGAIN)
            continue;
        if (rc != SPW_OK) {
            fail_device(unit);
            continue;
        }
        if (unit->phase == SPW__PHASE_COPY_IN) {
            spw__device_event_put(mover->config.device, unit->event);
            set_phase(unit, SPW__PHASE_COPY_IN, NULL);
            start_io(unit, slot_data(mover, unit->slot));
        } else {
            finish_unit(unit);
        }
    }
}

/* A copy between memory tiers: on the CPU at once, with a device by its copy engine. */
static void launch_copy(struct spw__unit *unit)
{
    struct spw__mover *mover = unit->mover;
    const struct spw__move *move = unit->move;
    if (on_cpu(&move->from) && on_cpu(&move->to)) {
        spw__copy_streaming(cpu(move->to.address + unit->offset), cpu(move->from.address + unit->offset), unit->bytes);
        mover->copied = true;
        finish_unit(unit);
    } else {
        const bool to_device = move->to.tier == SPW_TIER_DEVICE;
        const struct spw__end *other = to_device ? &move->from : &move->to;
        start_device_copy(unit, SPW__PHASE_COPY_OUT, to_device,
                          on_cpu(other) ? cpu(other->address + unit->offset) : NULL);
    }
}

static void launch_write(struct spw__unit *unit)
{
    const struct spw__move *move = unit->move;
    if (unit->slot < 0) {
        start_io(unit, cpu(move->from.address + unit->offset));
    } else if (on_cpu(&move->from)) {
        spw__copy_streaming(slot_data(unit->mover, unit->slot), cpu(move->from.address + unit->offset), unit->bytes);
        start_io(unit, slot_data(unit->mover, unit->slot));
    } else {
        start_device_copy(unit, SPW__PHASE_COPY_IN, false, slot_data(unit->mover, unit->slot));
    }
}

static void launch_read(struct spw__unit *unit)
{
    start_io(unit, unit->slot < 0 ? (void *)cpu(unit->move->to.address + unit->offset)
                                  : (void *)slot_data(unit->mover, unit->slot));
}

bool spw__transfer_launch(struct spw__mover *mover, struct spw__move *move)
{
    struct spw__unit *unit = find_unit(mover);
    const bool writes = is_disk(&move->to), reads = is_disk(&move->from);
    const bool staged = (writes && !is_direct(mover, &move->from, move->bytes)) ||
                        (reads && !is_direct(mover, &move->to, move->bytes));
    if (!unit)
        return false;
    const int slot = staged ? take_slot(mover) : -1;
    if (staged && slot < 0)
        return false;
    const uint64_t left = move->bytes - move->issued_bytes;
    /* Copies with a device go whole: one event a piece (a unit's bytes are 32 bits, and a piece may be larger).
     * Everything else is cut, so that several are in flight. */
    const bool whole = !writes && !reads && !(on_cpu(&move->from) && on_cpu(&move->to));
    const uint64_t most = whole ? UINT64_C(1) << 30 : mover->segment_bytes;
    unit->mover = mover;
    unit->move = move;
    unit->offset = move->issued_bytes;
    unit->bytes = (uint32_t)(left < most ? left : most);
    unit->slot = slot;
    set_phase(unit, SPW__PHASE_COPY_IN, NULL);
    mover->n_busy++;
    move->units++;
    move->issued_bytes += unit->bytes;
    if (writes)
        launch_write(unit);
    else if (reads)
        launch_read(unit);
    else
        launch_copy(unit);
    return true;
}
