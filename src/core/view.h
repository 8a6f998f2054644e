/* What the two forms of spw_map share. Threads: any. */
#ifndef SPW_CORE_VIEW_H
#define SPW_CORE_VIEW_H

#include "src/core/map.h"

/* Checks a map's arguments; *taken: its options as this version knows them. */
int spw__map_check(spw_buffer *buffer, spw_place place, uint32_t flags, const spw_map_options *options,
                   spw_map_options *taken);

spw_view spw__view_of(struct spw__payload *payload, const struct spw__mapped *mapped, uint32_t flags);

#endif
