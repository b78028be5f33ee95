/* Tests of what the launcher's variables tell. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/launcher.h"

static const char *const *environment;

static const char *fake_getenv(const char *name)
{
    size_t length = strlen(name);
    for (const char *const *e = environment; *e; e++)
        if (strncmp(*e, name, length) == 0 && (*e)[length] == '=')
            return *e + length + 1;
    return NULL;
}

static int rank_of(const char *const *set)
{
    environment = set;
    return tpw_launcher_rank(fake_getenv);
}

Test(launcher, rank_comes_from_the_innermost_launcher)
{
    cr_assert_eq(rank_of((const char *[]){NULL}), 0);
    cr_assert_eq(rank_of((const char *[]){"OMPI_COMM_WORLD_RANK=3", "SLURM_PROCID=0", NULL}), 3);
    cr_assert_eq(rank_of((const char *[]){"SLURM_PROCID=0", "PMIX_RANK=2", NULL}), 2);
    cr_assert_eq(rank_of((const char *[]){"SLURM_PROCID=5", NULL}), 5);
    cr_assert_eq(rank_of((const char *[]){"PMI_RANK=7", NULL}), 7);
}

Test(launcher, a_rank_that_is_no_number_speaks_as_zero)
{
    cr_assert_eq(rank_of((const char *[]){"OMPI_COMM_WORLD_RANK=x", NULL}), 0);
    cr_assert_eq(rank_of((const char *[]){"OMPI_COMM_WORLD_RANK=-1", NULL}), 0);
    cr_assert_eq(rank_of((const char *[]){"OMPI_COMM_WORLD_RANK=1x", NULL}), 0);
    cr_assert_eq(rank_of((const char *[]){"OMPI_COMM_WORLD_RANK=99999999999999999999", NULL}), 0);
    cr_assert_eq(rank_of((const char *[]){"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=1", NULL}), 1);
}

static void job_is(const char *const *set, const char *expected)
{
    char job[TPW_JOB_NAME_MAX];
    environment = set;
    tpw_launcher_job(fake_getenv, job);
    cr_assert_str_eq(job, expected);
}

Test(launcher, the_job_name_is_fit_for_a_file_name)
{
    job_is((const char *[]){NULL}, "");
    job_is((const char *[]){"OMPI_MCA_ess_base_jobid=12", "SLURM_JOB_ID=77", NULL}, "77");
    job_is((const char *[]){"OMPI_MCA_ess_base_jobid=12", "PMIX_NAMESPACE=a", NULL}, "12");
    job_is((const char *[]){"PMIX_NAMESPACE=prte-host@1/../x y", NULL}, "prte-host_1_.._x_y");
    char entry[300] = "SLURM_JOB_ID=";
    memset(entry + 13, 'j', 200);
    char expected[TPW_JOB_NAME_MAX];
    memset(expected, 'j', sizeof expected - 1);
    expected[sizeof expected - 1] = '\0';
    job_is((const char *[]){entry, NULL}, expected);
}
