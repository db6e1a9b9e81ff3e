#!/bin/sh
# Runs the program of mpi.c by two ranks: mpi.sh PROGRAM.  The variables are what Open MPI needs of root, on few cores and in containers,
# which forbid reading another process's memory.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # before Open MPI 5, and in it
exec mpirun -n 2 "$1"
