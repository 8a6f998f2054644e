/* The steps of one segment. Neighbours: mover.c schedules, io/ transfers, pool/device copies, integrity.c sums.
 *
 * Small copies with a device are gathered and enqueued together (spw__transfer_flush). */
#include "spill/transfer.h"

#include <errno.h>
#include <stdio.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/base/units.h"
#include "spill/copy.h"
#include "spill/integrity.h"

/* Up to these sizes copies go together: where a call takes about as long as its copy. Of larger ones each is to be
 * known as done as soon as it is. */
#define BATCH_BYTES_MAX (UINT32_C(256) << 10)
enum { BATCH_MAX = SPW__COPIES_MAX };

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
    (void)spw__device_settle(mover->config.device, mover->to_device);
    (void)spw__device_settle(mover->config.device, mover->from_device);
    finish_unit(unit);
}

/* The same for unit and those that share its event. */
static void fail_devices(struct spw__unit *unit)
{
    for (struct spw__unit *next; unit; unit = next) {
        next = unit->follower;
        fail_device(unit);
    }
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

/* A copy that begins or ends on the device; memory is the CPU's side of it, NULL for a copy within the device. */
static struct spw__device_copy make_copy(bool to_device, uint64_t to, uint64_t from, void *memory, uint64_t bytes)
{
    const uint64_t at = (uint64_t)(uintptr_t)memory;
    const enum spw__copy_kind kind = !memory ? SPW__COPY_WITHIN : to_device ? SPW__COPY_TO : SPW__COPY_FROM;
    return (struct spw__device_copy){.kind = kind, .bytes = bytes, .dst = kind == SPW__COPY_FROM ? at : to,
                                     .src = kind == SPW__COPY_TO ? at : from};
}

/* Enqueues a copy that comes after the use. */
static int enqueue_copy(const struct spw__mover *mover, spw__stream stream, const struct spw__device_copy *copy,
                        const struct spw__use *after)
{
    unsigned done;
    int rc = SPW_OK;
    if (after && !spw__fault(SPW__FAULT_SKIP_COPY_ORDER))
        rc = spw__device_event_order(mover->config.device, stream, after->event);
    return rc == SPW_OK ? spw__device_copy_batch(mover->config.device, stream, copy, 1, &done) : rc;
}

int spw__mover_enqueue(struct spw__mover *mover, const struct spw__end *from, const struct spw__end *to, uint64_t bytes,
                       const struct spw__use *after)
{
    const bool to_device = to->tier == SPW_TIER_DEVICE;
    const struct spw__end *other = to_device ? from : to;
    const struct spw__device_copy copy =
        make_copy(to_device, to->address, from->address, on_cpu(other) ? cpu(other->address) : NULL, bytes);
    return enqueue_copy(mover, spw__mover_copy_stream(mover, to_device), &copy, after);
}

/* The chain's copies are enqueued: its first unit gets the event that tells when they are done. */
static void enqueued(struct spw__unit *chain, spw__stream stream)
{
    struct spw__event *event = NULL;
    if (spw__device_event_record(chain->mover->config.device, stream, &event) == SPW_OK)
        set_phase(chain, chain->phase, event);
    else
        fail_devices(chain);
}

/* A copy that is large, or has to wait on the device for its source's last use. */
static void enqueue_alone(struct spw__unit *unit, spw__stream stream)
{
    const int rc = enqueue_copy(unit->mover, stream, &unit->copy, unit->move->use);
    if (rc == SPW_OK)
        enqueued(unit, stream);
    else
        fail_device(unit);
}

static void flush(struct spw__mover *mover, bool to_device)
{
    struct spw__batch *batch = &mover->batches[to_device];
    const spw__stream stream = spw__mover_copy_stream(mover, to_device);
    struct spw__device_copy copies[BATCH_MAX];
    struct spw__unit *unit = batch->first, *next, *chain = NULL, **link = &chain;
    while (unit) {
        unsigned n = 0, done;
        for (next = unit; next; next = next->follower)
            copies[n++] = next->copy;
        const int rc = spw__device_copy_batch(mover->config.device, stream, copies, n, &done);
        for (; done > 0; done--, unit = unit->follower) {
            *link = unit;
            link = &unit->follower;
        }
        if (rc == SPW_OK)
            break;
        next = unit->follower; /* one is refused: those behind it are tried again */
        fail_device(unit);
        unit = next;
    }
    *link = NULL;
    *batch = (struct spw__batch){.n = 0};
    if (chain)
        enqueued(chain, stream);
}

void spw__transfer_flush(struct spw__mover *mover)
{
    flush(mover, false);
    flush(mover, true);
}

/* A copy that does not keep those waiting that share its event: small, its source's last use over. */
static bool is_brief(const struct spw__unit *unit)
{
    return unit->bytes <= BATCH_BYTES_MAX &&
           (!unit->move->use ||
            spw__device_event_query(unit->mover->config.device, unit->move->use->event) == SPW_OK);
}

/* Has the unit's part of a move that begins or ends on the device copied; memory is the CPU's side of it, NULL for a
 * copy within the device. */
static void start_device_copy(struct spw__unit *unit, enum spw__phase phase, bool to_device, void *memory)
{
    struct spw__mover *mover = unit->mover;
    struct spw__batch *batch = &mover->batches[to_device];
    unit->copy = make_copy(to_device, unit->move->to.address + unit->offset, unit->move->from.address + unit->offset,
                           memory, unit->bytes);
    unit->follower = NULL;
    set_phase(unit, phase, NULL);
    if (!is_brief(unit)) {
        flush(mover, to_device);
        enqueue_alone(unit, spw__mover_copy_stream(mover, to_device));
        return;
    }
    if (batch->last)
        batch->last->follower = unit;
    else
        batch->first = unit;
    batch->last = unit;
    if (++batch->n == BATCH_MAX)
        flush(mover, to_device);
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

static void copied(struct spw__unit *unit)
{
    if (unit->phase == SPW__PHASE_COPY_IN)
        start_io(unit, slot_data(unit->mover, unit->slot));
    else
        finish_unit(unit);
}

void spw__transfer_poll_events(struct spw__mover *mover)
{
    for (unsigned i = 0; mover->n_events && i < SPW__UNITS; i++) {
        struct spw__unit *unit = &mover->units[i], *next;
        if (!unit->event)
            continue;
        const int rc = spw__device_event_query(mover->config.device, unit->event);
        if (rc == SPW_EAGAIN)
            continue;
        if (rc != SPW_OK) {
            fail_devices(unit);
            continue;
        }
        spw__device_event_put(mover->config.device, unit->event);
        set_phase(unit, unit->phase, NULL);
        for (; unit; unit = next) {
            next = unit->follower;
            copied(unit);
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
