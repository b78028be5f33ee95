# Criterion under mpirun: one test is one launch. Also the environment of every test, sanitizer settings included.
#
# criterion_mpi_discover(<target> NPROCS 2 4 [SAN_NPROCS 2] [TIMEOUT 80] [LABELS quick full san])
# After the build, asks the test binary for its list of tests and gives ctest one entry per test and rank count. TIMEOUT is
# ctest's, in seconds; mpirun's is 10 less, and a suite's own .timeout should be less again: then the test is named that hangs.
# SAN_NPROCS: only these rank counts keep the label san, where the sanitizers make every count too slow.
set(_CRITERION_MPI_DIR "${CMAKE_CURRENT_LIST_DIR}")

set(TPW_TEST_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  TPWORKER_BACKEND=host) # of the command: what it gives by itself must not depend on the machine; tests of GPUs ask for them
if(TPW_SANITIZE)
  # the slow unwinder sees through Open MPI's frames, without which the suppressions do not match
  list(APPEND TPW_TEST_ENVIRONMENT
    ASAN_OPTIONS=fast_unwind_on_malloc=0
    LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0
    UBSAN_OPTIONS=print_stacktrace=1)
endif()

function(criterion_mpi_discover target)
  cmake_parse_arguments(A "" "TIMEOUT" "NPROCS;SAN_NPROCS;LABELS" ${ARGN})
  if(NOT A_NPROCS)
    message(FATAL_ERROR "criterion_mpi_discover(${target}): NPROCS is missing")
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 80)
  endif()
  if(NOT A_LABELS)
    set(A_LABELS quick full san)
  endif()
  if(NOT A_SAN_NPROCS)
    set(A_SAN_NPROCS ${A_NPROCS})
  endif()
  set(out "${CMAKE_CURRENT_BINARY_DIR}/${target}_tests.cmake")
  # lists travel through -D with another separator
  string(REPLACE ";" "|" nprocs "${A_NPROCS}")
  string(REPLACE ";" "|" san_nprocs "${A_SAN_NPROCS}")
  string(REPLACE ";" "|" labels "mpi;${A_LABELS}")
  string(REPLACE ";" "|" environment "${TPW_TEST_ENVIRONMENT}")
  add_custom_command(TARGET ${target} POST_BUILD
    BYPRODUCTS "${out}"
    COMMAND "${CMAKE_COMMAND}"
      -D "BIN=$<TARGET_FILE:${target}>" -D "NAME=${target}" -D "OUT=${out}"
      -D "NPROCS=${nprocs}" -D "SAN_NPROCS=${san_nprocs}" -D "LABELS=${labels}"
      -D "TIMEOUT=${A_TIMEOUT}" -D "ENVIRONMENT=${environment}"
      -D "MPIEXEC=${MPIEXEC_EXECUTABLE}" -D "NPFLAG=${MPIEXEC_NUMPROC_FLAG}"
      -P "${_CRITERION_MPI_DIR}/CriterionMpiDiscover.cmake"
    VERBATIM)
  # a program that is not built yet is one failing test, not an error that hides all others
  set(guarded "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
  file(WRITE "${guarded}" "if(EXISTS [=[${out}]=])\n  include([=[${out}]=])\nelse()\n  "
    "add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${guarded}")
endfunction()

# tpw_mpi_test(<name> NPROCS 2 4 [TIMEOUT 80] [LABELS ...]): the Criterion program <name>.c, found by the above.
function(tpw_mpi_test name)
  add_executable(${name} ${name}.c)
  target_link_libraries(${name} PRIVATE tpw_internal MPI::MPI_C PkgConfig::CRITERION)
  target_compile_definitions(${name} PRIVATE TPW_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    TPW_TEST_POCKET="${PROJECT_SOURCE_DIR}/models/pocket")
  criterion_mpi_discover(${name} ${ARGN})
endfunction()
