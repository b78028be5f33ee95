# Run with -P by CriterionMpi.cmake: writes add_test() calls for every "suite/test" of ${BIN}.
cmake_minimum_required(VERSION 3.25) # policies of a script: IN_LIST
execute_process(COMMAND "${BIN}" --list OUTPUT_VARIABLE o ERROR_VARIABLE e RESULT_VARIABLE rc)
if(NOT rc EQUAL 0)
  message(FATAL_ERROR "${BIN} --list: ${rc}\n${o}${e}")
endif()
string(REPLACE "|" ";" nprocs "${NPROCS}")
string(REPLACE "|" ";" san_nprocs "${SAN_NPROCS}")
string(REPLACE "|" ";" labels "${LABELS}")
string(REPLACE "|" ";" environment "${ENVIRONMENT}")
string(REPLACE "\n" ";" lines "${o}${e}")
# Criterion's own limit (the suite's .timeout) first, then mpirun's, then ctest's
math(EXPR guard "${TIMEOUT} - 10")
set(text "")
set(suite "")
set(found 0)
foreach(l IN LISTS lines)
  if(l MATCHES "^([A-Za-z0-9_]+):")
    set(suite "${CMAKE_MATCH_1}")
  elseif(l MATCHES "[^A-Za-z0-9_]*([A-Za-z0-9_]+)")
    set(t "${CMAKE_MATCH_1}")
    math(EXPR found "${found} + 1")
    foreach(n IN LISTS nprocs)
      set(id "${NAME}.${suite}.${t}.np${n}")
      set(own "${labels}")
      if(NOT n IN_LIST san_nprocs)
        list(REMOVE_ITEM own san)
      endif()
      string(APPEND text
        "add_test([=[${id}]=] \"${MPIEXEC}\" --timeout ${guard} --tag-output --bind-to none --oversubscribe ${NPFLAG} ${n} \"${BIN}\" -j1 --short-filename --filter ${suite}/${t})\n"
        "set_tests_properties([=[${id}]=] PROPERTIES TIMEOUT ${TIMEOUT} PROCESSORS ${n} LABELS \"${own}\""
        " FAIL_REGULAR_EXPRESSION \"Tested: 0 ;ERROR: (Address|Leak)Sanitizer;runtime error:\""
        " SKIP_REGULAR_EXPRESSION \"TPW-SKIP:\""
        " ENVIRONMENT \"${environment}\")\n")
    endforeach()
  endif()
endforeach()
if(found EQUAL 0)
  message(FATAL_ERROR "${BIN} --list names no test")
endif()
file(WRITE "${OUT}" "${text}")
