#!/bin/sh
# Runs the program of mpi.c by two ranks, with what mpirun of Open MPI needs of root and on few cores: mpi.sh PROGRAM
set -eu
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
OMPI_MCA_btl_vader_single_copy_mechanism=none # which containers forbid
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_hwloc_base_binding_policy \
    OMPI_MCA_btl_vader_single_copy_mechanism
exec mpirun -n 2 "$1"
