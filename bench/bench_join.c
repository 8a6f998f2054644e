/* bench_join: the main job from end to end. Reads or makes LINEITEM and PARTSUPP, joins them within the given budgets,
 * and reports the answer, what moved, and how long it took. Neighbours: join_options.c, join_report.c, join_signals.c,
 * engine/. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <spillway/spillway.h>

#include "engine/crew.h"
#include "engine/join.h"
#include "engine/verify.h"
#include "engine/worker.h"
#include "engine/write.h"
#include "join_options.h"
#include "join_report.h"
#include "join_signals.h"

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

/* Half-written tables are removed on a signal. */
static int write_tables(struct job *job, struct eng_error *error)
{
    join_signals_defer();
    if (eng_write_tables(&job->tpch, job->options.write, &join_signal, error) != 0)
        return -1;
    join_signals_undefer();
    return 0;
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

/* Without a spill folder everything must fit at once; better said before the work than after it. Whether it does is a
 * matter of the tables, so that this is no bad argument. */
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

/* The library's reason ends with a remedy in its own words: one is enough. With driver=auto the manager was created
 * without the device tier, after a try that left its reason. */
static int fail_without_gpu(spw_manager **manager, struct eng_error *error)
{
    const spw_error_info *info = spw_error_detail();
    const char *reason = info->code == SPW_ENOTSUP ? info->message : "no device";
    (void)eng_fail(error, ENG_USAGE, "no GPU can be used (%.*s): --driver sim simulates one",
                   (int)strcspn(reason, ";"), reason);
    spw_manager_destroy_force(*manager);
    *manager = NULL;
    return -1;
}

static int create_manager(struct job *job, spw_manager **manager, struct eng_error *error)
{
    const spw_spec *spec = &job->options.spec;
    spw_options options;
    spw_options_init(&options);
    options.spec = job->options.string;
    options.fields = spec;
    options.default_timeout_ms = spec->n_folders > 0 ? TIMEOUT_WITH_DISK_MS : TIMEOUT_WITHOUT_DISK_MS;
    options.log = take_note;
    options.log_arg = &job->notes;
    int code = spw_manager_create(&options, manager);
    if (code == 0 && (spec->n_pools[SPW_TIER_DEVICE] == 0 || spw_budget(*manager, SPW_DEVICE) > 0))
        return 0;
    /* What is not supported because the system refused a call is io_uring. */
    if (code == 0 || (code == SPW_ENOTSUP && spec->driver != SPW_DRIVER_SIM && spw_error_detail()->os_errno == 0))
        return fail_without_gpu(manager, error);
    (void)eng_fail_library(error, code, "cannot set up the tiers");
    if (code == SPW_ESPEC) /* the environment */
        error->status = ENG_USAGE;
    return -1;
}

static int make_plan(struct job *job, enum eng_work work, struct eng_error *error)
{
    if (eng_plan_make(&job->plan, &job->options.spec, work, job->options.threads, job->sources, error) != 0)
        return -1;
    return check_fits(job, error);
}

/* The engine's functions are host code: a GPU cannot run them, and is a tier like any other then. */
static int check_work(struct job *job, spw_manager *manager, struct eng_error *error)
{
    if (job->plan.work != SPW_DEVICE || eng_device_can_run(manager))
        return 0;
    if (job->options.work == ENG_WORK_DEVICE)
        return eng_fail(error, ENG_USAGE, "--work device: only a simulated device (--driver sim) runs this engine's "
                        "functions");
    fputs("bench_join: note: the device cannot run this engine's functions: rows are worked on in host memory\n",
          stderr);
    return make_plan(job, ENG_WORK_HOST, error);
}

static int run_join(struct job *job, struct eng_error *error)
{
    struct join_report *report = &job->report;
    const spw_spec *spec = &job->options.spec;
    struct eng_error ignored;
    spw_manager *manager;
    const struct eng_join_options how = {spec->n_folders > 0, isatty(STDERR_FILENO) == 1, &join_signal};
    double start = eng_now();
    join_signals_defer();
    if (create_manager(job, &manager, error) != 0)
        return -1;
    int result = check_work(job, manager, error);
    if (result == 0)
        result = eng_join(manager, &job->plan, job->sources, &how, &report->answer, &report->times, error);
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
    if (result == 0)
        join_signals_undefer();
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

static int finish_output(struct eng_error *error)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return eng_fail(error, ENG_FAILED, "cannot write to standard output%s%s", errno != 0 ? ": " : "",
                    errno != 0 ? strerror(errno) : "");
}

static int run(struct job *job, struct eng_error *error)
{
    if (open_input(job, error) != 0 || make_plan(job, job->options.work, error) != 0)
        return -1;
    if (job->options.write != NULL && write_tables(job, error) != 0)
        return -1;
    if (run_join(job, error) != 0)
        return -1;
    if (job->options.verify && verify_answer(job, error) != 0)
        return -1;
    job->report.threads = job->plan.threads;
    job->report.work = job->plan.work;
    job->report.config = job->options.spec_text;
    for (unsigned i = 0; i < job->notes.count; i++)
        fprintf(stderr, "bench_join: note: %s\n", job->notes.lines[i]);
    if (job->options.json)
        join_report_json(&job->report);
    else
        join_report_text(&job->report);
    return finish_output(error);
}

int main(int argc, char *argv[])
{
    static struct job job = {.notes = {.lock = PTHREAD_MUTEX_INITIALIZER}, .report = {.stats = SPW_STATS_INIT}};
    struct eng_error error;
    join_signals_install();
    int result = join_options_parse(argc, argv, &job.options, &error);
    if (result == 0 && job.options.help) {
        fputs(join_help, stdout);
        result = finish_output(&error);
    } else if (result == 0) {
        result = run(&job, &error);
        eng_source_close(&job.sources[ENG_PARTSUPP]);
        eng_source_close(&job.sources[ENG_LINEITEM]);
        tpch_finish(&job.tpch);
        join_options_finish(&job.options);
    }
    if (result == 0)
        return 0;
    if (error.status == ENG_STOPPED) {
        fprintf(stderr, "bench_join: interrupted by %s %s\n", join_signal_name(join_signal), error.text);
        return JOIN_SIGNAL_STATUS(join_signal);
    }
    fprintf(stderr, "bench_join: %s\n", error.text);
    return (int)error.status;
}
