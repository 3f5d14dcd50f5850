# The C++ tests: one program, which CTest runs in shards, one for each source, so that they run side by side and a
# failure names its file.
#
# All shards run on the best instruction set of the machine. On the others of the build they run again, as scalar.FILE
# and avx2.FILE, unless a set cannot change what they do:
# - they compare the kernels or engines of all sets with each other, whatever the process has chosen: *_kernels and
#   `all_sets`,
# - they test code that has no kernels but those of words, checksums and random numbers, which have tests of their own
#   on all sets: `no_kernels`,
# - they are Paillier's, whose two engines Python's tests encrypt, add and open with, too. But `both_engines`, which
#   share numbers between threads or have digests written down, run as scalar as well, which computes with GMP; so would
#   AVX2 and NEON. Of the encryptor's tests this is one; all of them run with GMP in the build for 64-bit ARM.
# Where the kernels are scalar alone there are no others to run on.
set(all_sets common_crc32c)
set(no_kernels ckks_parameter_search ckks_parameters common_verify common_wire mask_codec parallel_for
               selection_mutual_information selection_selection)
set(both_engines paillier_encryptor paillier_known_bits paillier_pool)
# The longest, which begin first: a shard that is alone at the end keeps one core waiting.
set(long_shards enrolled_lies paillier_secret_key paillier_ifma_engine paillier_gmp_engine paillier_decryptor)

file(GLOB test_sources CONFIGURE_DEPENDS cpp/tests/*/test_*.cpp)
list(FILTER test_sources EXCLUDE REGEX "/freed_memory/")
add_executable(core_tests cpp/tests/main.cpp ${test_sources})
target_link_libraries(core_tests PRIVATE shieldfl_core)
# Of the one file that asks: others are compiled with headers that were precompiled without it.
if(CMAKE_CROSSCOMPILING_EMULATOR)
  set_source_files_properties(cpp/tests/paillier/test_pool.cpp PROPERTIES COMPILE_DEFINITIONS SHIELDFL_EMULATED)
endif()
shieldfl_warnings(core_tests)
# The tests' own code need not be fast, what they test is compiled as it is shipped.
target_compile_options(core_tests PRIVATE $<$<CONFIG:Release>:-O1>)
shieldfl_precompiled(core_tests <algorithm> <cmath> <cstdint> <functional> <map> <memory> <optional> <random> <span>
                     <sstream> <string> <vector>)
shieldfl_compiled_together(core_tests 12)

foreach(source IN LISTS test_sources)
  string(REGEX REPLACE "^.*/([a-z]+)/test_([a-z0-9_]+)\\.cpp$" "\\1_\\2" shard "${source}")
  add_test(NAME ${shard} COMMAND core_tests ${shard}.)
  if(shard IN_LIST long_shards)
    set_tests_properties(${shard} PROPERTIES COST 100)
  endif()
  if(SHIELDFL_INSTRUCTION_SETS STREQUAL "scalar")
    continue()
  elseif(shard IN_LIST both_engines AND avx512 IN_LIST SHIELDFL_INSTRUCTION_SETS)
    set(other_sets scalar)
  elseif(shard MATCHES "_kernels$|^paillier_" OR shard IN_LIST all_sets OR shard IN_LIST no_kernels)
    continue()
  else()
    set(other_sets ${SHIELDFL_INSTRUCTION_SETS})
    list(POP_BACK other_sets)
  endif()
  set(chosen "${shard}.")
  if(shard STREQUAL paillier_encryptor)
    set(chosen paillier_encryptor.paillier_frames_depend_on_the_seed_and_not_on_the_threads)
  endif()
  foreach(instruction_set IN LISTS other_sets)
    add_test(NAME ${instruction_set}.${shard} COMMAND core_tests ${chosen})
    set_tests_properties(${instruction_set}.${shard} PROPERTIES ENVIRONMENT SHIELDFL_SIMD=${instruction_set}
                                                                SKIP_RETURN_CODE 77)
  endforeach()
endforeach()
