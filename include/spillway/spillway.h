/* Spillway: run a shuffle, join or sort whose data is larger than its memory. This header includes all others.
 *
 * Start with manager.h (create), buffer.h (admit, map, seal, release) and stats.h (what happened).
 */
#ifndef SPILLWAY_SPILLWAY_H
#define SPILLWAY_SPILLWAY_H

#include <spillway/buffer.h>
#include <spillway/error.h>
#include <spillway/group.h>
#include <spillway/head.h>
#include <spillway/manager.h>
#include <spillway/place.h>
#include <spillway/pool.h>
#include <spillway/reclaim.h>
#include <spillway/reserve.h>
#include <spillway/spec.h>
#include <spillway/stats.h>
#include <spillway/stream.h>
#include <spillway/task.h>
#include <spillway/ticket.h>
#include <spillway/version.h>
#include <spillway/wait.h>

#endif
