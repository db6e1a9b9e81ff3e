/* MPI's ranks have a model together, four and more of them in two rows that share out the items, and train it: each rank compares its part with
 * what it trains by itself.  test_mpi.py starts it by mpirun. */
#include <clattn/mpi.h>
#include <math.h>
#include <stdlib.h>

#include "support/device.h"
#include "support/group/split.h"
#include "support/group/team.h"
#include "support/suite.h"

static clattn_group group;

static void trains_as_one(const void *which, const char *unused)
{
    const training_case *test = which;
    training_world part, one;
    clattn_group row, column;
    clattn_group_grid *grid = NULL;
    const int32_t columns = group.ranks >= 4 ? group.ranks / 2 : group.ranks, rows = group.ranks / columns;
    const clattn_transformer_desc desc = training_model(test);
    double apart = 0, mean;
    size_t count;
    (void)unused;
    training_open(&part, test);
    training_open(&one, test);
    part.desc.batch = one.desc.batch = 1;
    const clattn_weight_source source = nn_source(&part.store);
    clattn_trainer_release(&part.trainer);
    clattn_transformer_release(&part.model);
    assert_int_equal(clattn_group_grid_create(&group, columns, &grid), CLATTN_SUCCESS);
    assert_int_equal(clattn_group_grid_row(grid, &row), CLATTN_SUCCESS);
    assert_int_equal(clattn_group_grid_column(grid, &column), CLATTN_SUCCESS);
    assert_status(device_context(),
                  clattn_group_transformer_create(device_context(), &row, &desc, &source, &part.model), CLATTN_SUCCESS);
    assert_status(device_context(), clattn_group_trainer_create(part.model, &column, &part.trainer), CLATTN_SUCCESS);
    for (int64_t number = 1; number <= TEAM_UPDATES; number++) {
        const clattn_update_args args = team_update_args(number);
        for (int32_t i = 0; i < rows; i++)
            training_step(&one, (size_t)i, i > 0, (uint64_t)number);
        training_step(&part, (size_t)column.rank, false, (uint64_t)number);
        for (size_t i = 0; i < TRAINING_TARGET; i++) {
            const size_t at = (size_t)column.rank * TRAINING_TARGET + i;
            assert_true(fabsf(part.losses[at] - one.losses[at]) <= 1e-5f);
        }
        assert_status(device_context(), clattn_trainer_update(one.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        assert_status(device_context(), clattn_trainer_update(part.trainer, NULL, &args, 0, NULL, NULL),
                      CLATTN_SUCCESS);
    }
    for (size_t i = 0; i < clattn_trainer_parameter_count(part.trainer); i++) {
        const clattn_parameter p = training_parameter(&part, i, &count), whole = split_find(&one, p.name);
        apart = fmax(apart, split_apart(&p, &whole, &mean));
    }
    print_message("# rank %d: %.2g from one device's\n", (int)group.rank, apart);
    assert_true(apart <= 3e-6);
    training_close(&part);
    training_close(&one);
    clattn_group_grid_release(&grid);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int failed = clattn_group_mpi_create(MPI_COMM_WORLD, 30000, &group) != CLATTN_SUCCESS;
    for (int i = 0; i < 2; i++)
        suite_add_case(trains_as_one, &training_cases[i], "", "group tensor by MPI: %s", training_cases[i].name);
    failed = failed || suite_run("mpi_tensor", argc, argv);
    if (failed)
        MPI_Abort(MPI_COMM_WORLD, 1);
    clattn_group_mpi_release(&group);
    MPI_Finalize();
    return 0;
}
