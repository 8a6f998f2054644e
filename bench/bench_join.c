/* bench_join: the main job from end to end. Reads or makes LINEITEM and PARTSUPP, joins them within the given budgets,
 * and reports the answer, what moved, and how long it took. Neighbours: join_options.c, join_report.c, engine/. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <spillway/spillway.h>

#include "engine/crew.h"
#include "engine/join.h"
#include "engine/verify.h"
#include "engine/write.h"
#include "join_options.h"
#include "join_report.h"

#define NOTES_MAX 8

/* With disk, a wait only ends late when the disk is slow; without, nothing will come free. */
#define TIMEOUT_WITH_DISK_MS    300000
#define TIMEOUT_WITHOUT_DISK_MS 5000

/* What the library had to say, kept until the end: an error is to be one clear line. */
struct notes {
    pthread_mutex_t lock;
    unsigned count;              /* guarded by lock */
    char lines[NOTES_MAX][256];  /* guarded by lock */
};

struct job {
    struct join_options options;
    struct tpch tpch;
    struct eng_source sources[ENG_SIDES];
    struct eng_plan plan;
    struct join_report report;
    struct notes notes;
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    stopped = number;
}

static void take_note(void *arg, int level, const char *line)
{
    struct notes *notes = arg;
    if (level > 2)
        return;
    (void)pthread_mutex_lock(&notes->lock);
    if (notes->count < NOTES_MAX)
        (void)snprintf(notes->lines[notes->count++], sizeof notes->lines[0], "%s", line);
    (void)pthread_mutex_unlock(&notes->lock);
}

/* Half-written tables are removed on a signal; at any other time there is nothing to remove. */
static int write_tables(struct job *job, struct eng_error *error)
{
    struct sigaction action, old_int, old_term;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    (void)sigaction(SIGINT, &action, &old_int);
    (void)sigaction(SIGTERM, &action, &old_term);
    int result = eng_write_tables(&job->tpch, job->options.write, &stopped, error);
    (void)sigaction(SIGINT, &old_int, NULL);
    (void)sigaction(SIGTERM, &old_term, NULL);
    return result;
}

static int open_input(struct job *job, struct eng_error *error)
{
    const struct join_options *options = &job->options;
    if (options->scale_factor > 0) {
        if (tpch_init(&job->tpch, options->scale_factor, error) != 0)
            return -1;
        eng_source_open_tpch(&job->sources[ENG_PARTSUPP], ENG_PARTSUPP, &job->tpch);
        eng_source_open_tpch(&job->sources[ENG_LINEITEM], ENG_LINEITEM, &job->tpch);
    } else if (eng_source_open_folder(&job->sources[ENG_PARTSUPP], ENG_PARTSUPP, options->partsupp, error) != 0 ||
               eng_source_open_folder(&job->sources[ENG_LINEITEM], ENG_LINEITEM, options->lineitem, error) != 0) {
        return -1;
    }
    for (unsigned side = 0; side < ENG_SIDES; side++)
        job->report.input_bytes += (uint64_t)job->sources[side].rows * eng_source_row_bytes(&job->sources[side]);
    return 0;
}

/* Without a spill folder everything must fit at once; better said before the work than after it. */
static int check_fits(const struct job *job, struct eng_error *error)
{
    const spw_spec *spec = &job->options.spec;
    uint64_t memory = 0, wanted = job->report.input_bytes + job->plan.threads * job->plan.work_bytes;
    for (int tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++)
        memory += eng_tier_bytes(spec, (spw_tier)tier);
    if (spec->n_folders > 0 || wanted <= memory)
        return 0;
    return eng_fail(error, ENG_FAILED, "the tables and the working memory, %llu bytes, do not fit into memory budgets "
                    "of %llu bytes: --disk DIR lets them go to disk", (unsigned long long)wanted,
                    (unsigned long long)memory);
}

static int create_manager(struct job *job, spw_manager **manager, struct eng_error *error)
{
    const spw_spec *spec = &job->options.spec;
    spw_options options;
    spw_options_init(&options);
    options.spec = job->options.spec_text;
    options.default_timeout_ms = spec->n_folders > 0 ? TIMEOUT_WITH_DISK_MS : TIMEOUT_WITHOUT_DISK_MS;
    options.log = take_note;
    options.log_arg = &job->notes;
    int code = spw_manager_create(&options, manager);
    if (code != 0) {
        (void)eng_fail_library(error, code, "cannot set up the tiers");
        if (code == SPW_ESPEC)
            error->status = ENG_USAGE;
        if (spec->n_pools[SPW_TIER_DEVICE] == 0 || (code != SPW_EDEVICE && code != SPW_ENOTSUP))
            return -1;
    } else if (spec->n_pools[SPW_TIER_DEVICE] == 0 || spw_budget(*manager, SPW_DEVICE) > 0) {
        return 0;
    } else {
        spw_manager_destroy_force(*manager);
        *manager = NULL;
        (void)eng_fail(error, ENG_USAGE, "there is no GPU here");
    }
    size_t used = strlen(error->text);
    (void)snprintf(error->text + used, sizeof error->text - used, ": a device limit without a GPU wants --driver sim");
    error->status = ENG_USAGE;
    return -1;
}

static int run_join(struct job *job, struct eng_error *error)
{
    struct join_report *report = &job->report;
    const spw_spec *spec = &job->options.spec;
    struct eng_error ignored;
    spw_manager *manager;
    double start = eng_now();
    if (create_manager(job, &manager, error) != 0)
        return -1;
    int result = eng_join(manager, &job->plan, job->sources, spec->n_folders > 0, isatty(STDERR_FILENO) == 1,
                          &report->answer, &report->times, error);
    report->wall_s = eng_now() - start;
    int code = spw_stats_snapshot(manager, &report->stats);
    if (code != 0 && result == 0)
        result = eng_fail_library(error, code, "cannot take the statistics");
    code = spw_manager_destroy(manager);
    if (code != 0) {
        (void)eng_fail_library(result == 0 ? error : &ignored, code, "cannot shut down");
        spw_manager_destroy_force(manager);
        result = -1;
    }
    return result;
}

static int verify_answer(struct job *job, struct eng_error *error)
{
    const struct tpch *tpch = job->options.scale_factor > 0 ? &job->tpch : NULL;
    const struct eng_verify_input inputs[ENG_SIDES] = {{tpch, job->options.partsupp}, {tpch, job->options.lineitem}};
    const struct eng_answer *ours = &job->report.answer;
    struct eng_answer theirs;
    char text[8][ENG_NUMBER_MAX];
    double start = eng_now();
    if (eng_verify(inputs, &theirs, error) != 0)
        return -1;
    job->report.verify_s = eng_now() - start;
    job->report.verified = ours->rows == theirs.rows && ours->sum_extendedprice == theirs.sum_extendedprice &&
                           ours->sum_supplycost_x_quantity == theirs.sum_supplycost_x_quantity &&
                           ours->sum_availqty == theirs.sum_availqty;
    if (job->report.verified)
        return 0;
    return eng_fail(error, ENG_FAILED, "WRONG ANSWER: hash join gives rows %s, sums %s %s %s; sort-merge join gives "
                    "rows %s, sums %s %s %s", eng_number(ours->rows, text[0]),
                    eng_number(ours->sum_extendedprice, text[1]),
                    eng_number(ours->sum_supplycost_x_quantity, text[2]), eng_number(ours->sum_availqty, text[3]),
                    eng_number(theirs.rows, text[4]), eng_number(theirs.sum_extendedprice, text[5]),
                    eng_number(theirs.sum_supplycost_x_quantity, text[6]), eng_number(theirs.sum_availqty, text[7]));
}

static int run(struct job *job, struct eng_error *error)
{
    if (open_input(job, error) != 0 ||
        eng_plan_make(&job->plan, &job->options.spec, job->options.threads, job->sources, error) != 0 ||
        check_fits(job, error) != 0)
        return -1;
    if (job->options.write != NULL && write_tables(job, error) != 0)
        return -1;
    if (run_join(job, error) != 0)
        return -1;
    if (job->options.verify && verify_answer(job, error) != 0)
        return -1;
    job->report.threads = job->plan.threads;
    job->report.config = job->options.spec_text;
    for (unsigned i = 0; i < job->notes.count; i++)
        fprintf(stderr, "bench_join: note: %s\n", job->notes.lines[i]);
    if (job->options.json)
        join_report_json(&job->report);
    else
        join_report_text(&job->report);
    if (fflush(stdout) != 0)
        return eng_fail(error, ENG_FAILED, "cannot write to standard output");
    return 0;
}

int main(int argc, char *argv[])
{
    static struct job job = {.notes = {.lock = PTHREAD_MUTEX_INITIALIZER}, .report = {.stats = SPW_STATS_INIT}};
    struct eng_error error;
    int result = join_options_parse(argc, argv, &job.options, &error);
    if (result == 0 && job.options.help) {
        fputs(join_help, stdout);
        return 0;
    }
    if (result == 0) {
        result = run(&job, &error);
        eng_source_close(&job.sources[ENG_PARTSUPP]);
        eng_source_close(&job.sources[ENG_LINEITEM]);
        tpch_finish(&job.tpch);
        join_options_finish(&job.options);
    }
    if (result == 0)
        return 0;
    fprintf(stderr, "bench_join: %s\n", error.text);
    return (int)error.status;
}
