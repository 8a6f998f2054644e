/* A root with two groups below it, and what they have committed in host. */
#ifndef SPW_TESTS_LEDGER_FIXTURE_H
#define SPW_TESTS_LEDGER_FIXTURE_H

#include <check.h>

#include "pool/ledger.h"

enum { BUDGET = 1000 };

static struct spw__ledger ledger;
static struct spw__group root, left, right;

static void init_group(struct spw__group *group, struct spw__group *parent, uint64_t max)
{
    spw__group_init(group, parent, &ledger);
    for (int i = 0; i < SPW_TIER_META; i++)
        atomic_store(&group->gates[i].budget, max);
}

static uint64_t committed(const struct spw__group *group)
{
    return spw__ledger_committed(group, SPW_TIER_HOST);
}

static void commit_each(uint64_t of_root, uint64_t of_left, uint64_t of_right)
{
    ck_assert_uint_eq(committed(&root), of_root);
    ck_assert_uint_eq(committed(&left), of_left);
    ck_assert_uint_eq(committed(&right), of_right);
}

static void open_groups(void)
{
    spw__ledger_init(&ledger);
    init_group(&root, NULL, BUDGET);
    init_group(&left, &root, 600);
    init_group(&right, &root, 600);
}

static void close_groups(void)
{
    commit_each(0, 0, 0);
    spw__ledger_finish(&ledger);
}

#endif
