# The checks that no branch and no address depends on a secret. `constant_time` runs under valgrind, which has to be
# asked for; `constant_time_trace` follows two runs instruction by instruction, which covers what valgrind cannot run,
# AVX-512; `constant_time_emulated` has an emulator follow them, where the processor is emulated.
file(GLOB operation_sources CONFIGURE_DEPENDS cpp/tests/constant_time/*.cpp)
list(FILTER operation_sources INCLUDE REGEX "/(enrolled|kernels|leaks|paillier|schemes|total)\\.cpp$")

if(SHIELDFL_TAINT_CHECK)
  include(CheckIncludeFileCXX)
  check_include_file_cxx(valgrind/memcheck.h SHIELDFL_HAS_MEMCHECK)
  if(NOT SHIELDFL_HAS_MEMCHECK)
    message(FATAL_ERROR "SHIELDFL_TAINT_CHECK needs valgrind and its headers: install the package valgrind")
  endif()
  target_compile_definitions(shieldfl_core PUBLIC SHIELDFL_TAINT_CHECK)
  add_executable(constant_time cpp/tests/constant_time/taint.cpp ${operation_sources})
  target_link_libraries(constant_time PRIVATE shieldfl_core)
  shieldfl_warnings(constant_time)
  # Where in the source a report comes from.
  target_compile_options(shieldfl_core PRIVATE -g)
  target_compile_options(constant_time PRIVATE -g)
endif()

# Static, so that one disassembly has all the code. Sanitizers need the shared libraries, and the checks of contracts
# branch on secrets.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LINK_OPTIONS -static)
set(CMAKE_REQUIRED_LIBRARIES GMP::gmp)
check_cxx_source_compiles("#include <gmp.h>\nint main() { mpz_t n; mpz_init(n); mpz_clear(n); return 0; }"
                          SHIELDFL_LINKS_STATICALLY)
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" AND SHIELDFL_LINKS_STATICALLY AND NOT SHIELDFL_SANITIZE
   AND NOT SHIELDFL_VERIFY)
  add_executable(constant_time_trace cpp/tests/constant_time/trace.cpp cpp/tests/constant_time/disassembly.cpp
                 cpp/tests/constant_time/division.cpp cpp/tests/constant_time/divisors.cpp
                 cpp/tests/constant_time/exchange.cpp cpp/tests/constant_time/steps.cpp ${operation_sources})
  target_link_libraries(constant_time_trace PRIVATE shieldfl_core)
  target_link_options(constant_time_trace PRIVATE -static -no-pie)
  shieldfl_warnings(constant_time_trace)
  # As the C++ tests' own code: what is followed is the library's, compiled as it is shipped.
  target_compile_options(constant_time_trace PRIVATE $<$<CONFIG:Release>:-O1>)
  shieldfl_precompiled_by(core_tests constant_time_trace)
  add_test(NAME constant_time_trace_short COMMAND constant_time_trace --short)
  # It takes longest, on one core: it begins first. The C library's memory functions go without their instructions that
  # repeat, of which each byte would be a step; which ones they take depends on lengths alone.
  set(no_repeating_instructions
      "glibc.cpu.x86_rep_stosb_threshold=0x7fffffff:glibc.cpu.x86_rep_movsb_threshold=0x7fffffff")
  set_tests_properties(constant_time_trace_short PROPERTIES SKIP_RETURN_CODE 77 COST 1000
                       ENVIRONMENT "GLIBC_TUNABLES=${no_repeating_instructions}")
endif()

# Emulators that are linked statically load no plugins.
if(CMAKE_CROSSCOMPILING_EMULATOR MATCHES "qemu-[a-z0-9_]+$" AND NOT SHIELDFL_SANITIZE AND NOT SHIELDFL_VERIFY)
  find_program(SHIELDFL_HOST_COMPILER NAMES c++ g++ clang++ REQUIRED)
  set(plugin_source "${CMAKE_SOURCE_DIR}/cpp/tests/constant_time/qemu_plugin.cpp")
  set(plugin "${CMAKE_BINARY_DIR}/qemu_plugin.so")
  add_custom_command(OUTPUT "${plugin}" COMMAND "${SHIELDFL_HOST_COMPILER}" -std=c++20 -O2 -Wall -Wextra -shared -fPIC
                     "-I${CMAKE_SOURCE_DIR}/cpp" -o "${plugin}" "${plugin_source}"
                     DEPENDS "${plugin_source}" "${CMAKE_SOURCE_DIR}/cpp/tests/constant_time/emulated_steps.h")
  add_custom_target(qemu_plugin ALL DEPENDS "${plugin}")
  add_executable(constant_time_emulated cpp/tests/constant_time/emulated.cpp cpp/tests/constant_time/exchange.cpp
                 ${operation_sources})
  target_link_libraries(constant_time_emulated PRIVATE shieldfl_core)
  shieldfl_warnings(constant_time_emulated)
  # As the C++ tests' own code: what is followed is the library's, compiled as it is shipped.
  target_compile_options(constant_time_emulated PRIVATE $<$<CONFIG:Release>:-O1>)
  shieldfl_precompiled_by(core_tests constant_time_emulated)
  foreach(instruction_set IN LISTS SHIELDFL_INSTRUCTION_SETS)
    add_test(NAME ${instruction_set}.constant_time_emulated
             COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} -plugin ${plugin} $<TARGET_FILE:constant_time_emulated>)
    set_tests_properties(${instruction_set}.constant_time_emulated
                         PROPERTIES ENVIRONMENT SHIELDFL_SIMD=${instruction_set} COST 100)
  endforeach()
endif()
