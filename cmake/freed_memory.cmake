# The check that secrets are wiped before their memory is given back: operator new and delete are the program's own, which
# sanitizers replace themselves.
if(NOT SHIELDFL_SANITIZE)
  file(GLOB freed_memory_sources CONFIGURE_DEPENDS cpp/tests/freed_memory/*.cpp)
  add_executable(freed_memory cpp/tests/main.cpp ${freed_memory_sources})
  target_link_libraries(freed_memory PRIVATE shieldfl_core)
  shieldfl_warnings(freed_memory)
  target_compile_options(freed_memory PRIVATE $<$<CONFIG:Release>:-O1>)
  shieldfl_precompiled_by(core_tests freed_memory)
  foreach(instruction_set IN LISTS SHIELDFL_INSTRUCTION_SETS)
    add_test(NAME ${instruction_set}.freed_memory COMMAND freed_memory)
    set_tests_properties(${instruction_set}.freed_memory PROPERTIES ENVIRONMENT SHIELDFL_SIMD=${instruction_set}
                                                                    SKIP_RETURN_CODE 77)
  endforeach()
endif()
